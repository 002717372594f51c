"""`python -m tests.faults`. See `harness`, which processes that runs are forked from don't import."""

if __name__ == '__main__':
  from tests.faults import harness

  harness.main()
