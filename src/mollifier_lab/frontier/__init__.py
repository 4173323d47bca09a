"""The frontier: how deep can a network be, for each activation and each way of training it?"""
