"""What stewards and analysts sign, where it is posted and kept, and what may start and be handed out because of it."""
