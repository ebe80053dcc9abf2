/* What the Go side of the C interface cannot write in Go: storage that belongs to a thread, and a call through a pointer. */
#ifndef MORPHSEEK_SHIM_H
#define MORPHSEEK_SHIM_H

#define MS_NO_PROTOTYPES
#include "include/morphseek.h"

/* Keeps n bytes as the calling thread's last error; what does not fit is cut off. */
void shim_set_error(const char *text, size_t n);
char *shim_error(void);

/* Keeps n bytes as the text that ms_status_name returns on this thread. */
char *shim_keep_name(const char *text, size_t n);

/* Calls fn with a report made of NUL-terminated strings. */
int shim_progress(ms_progress_fn fn, const char *stage, double fraction, const char *message, void *user);

#endif
