"""Public maps from records to features in which a kernel machine is a linear one."""
