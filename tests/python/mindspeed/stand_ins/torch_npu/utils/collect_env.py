"""Stands for the question which version of Ascend's software is installed."""


def get_cann_version():
    return "8.2.RC1"
