"""Parts of what people see: figures with units, text for terminals, HTML for notebooks."""
