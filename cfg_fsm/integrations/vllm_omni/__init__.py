"""In vLLM-Omni: the drop-in tracker."""
