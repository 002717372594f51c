"""Which files the package has; all else is in pyproject.toml.

The gin files become lambda_kit/data/gin in the package. Their folder stays at the top of the repository, and has no
Python in it, since one named gin would hide the library.
"""

import setuptools

setuptools.setup(
  packages=[*setuptools.find_packages(include=['lambda_kit', 'lambda_kit.*']), 'lambda_kit.data.gin'],
  package_dir={'lambda_kit.data.gin': 'gin'},
  package_data={
    'lambda_kit': ['py.typed'],
    'lambda_kit.data.gin': ['**/*.gin'],
    'lambda_kit.analysis.reports': ['data/*'],
  },
)
