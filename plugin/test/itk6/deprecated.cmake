message(FATAL_ERROR "ITK_USE_FILE is deprecated in ITK 6")
