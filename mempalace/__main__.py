"""`python -m mempalace`."""

from mempalace.cli import main

main()
