"""What writes files of this repository from the code. Not part of the package."""
