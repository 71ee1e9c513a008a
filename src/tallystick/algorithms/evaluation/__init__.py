"""How well a released classifier does on records that stay where they are."""
