"""`python -m noisewise` is the command line."""

from noisewise.cli import main

main()
