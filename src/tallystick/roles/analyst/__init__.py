"""The analyst's end of a deployed study."""
