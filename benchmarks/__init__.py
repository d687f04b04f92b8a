"""What `make bench` measures. Nothing here asserts a time: each figure stands beside a floor taken in the same run."""
