"""Session -> another tool's file, or a container of the file that it was."""
