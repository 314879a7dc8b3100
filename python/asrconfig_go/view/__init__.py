"""Views of records: figures with units, text for terminals, HTML for notebooks."""
