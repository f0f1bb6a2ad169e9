"""Tests in which the outside world breaks its promises."""
