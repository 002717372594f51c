"""`python -m lambda_kit` is the command `lambda-kit`."""

from lambda_kit.commands import main

if __name__ == '__main__':  # Spawned processes import this module, too.
  main.main()
