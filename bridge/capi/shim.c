#include "shim.h"

#include <string.h>

static _Thread_local char error_text[4096];
static _Thread_local char name_text[64];

static char *keep(char *dst, size_t capacity, const char *text, size_t n) {
  if (n > capacity - 1) n = capacity - 1;
  memcpy(dst, text, n);
  dst[n] = 0;
  return dst;
}

void shim_set_error(const char *text, size_t n) { keep(error_text, sizeof error_text, text, n); }

char *shim_error(void) { return error_text; }

char *shim_keep_name(const char *text, size_t n) { return keep(name_text, sizeof name_text, text, n); }

int shim_progress(ms_progress_fn fn, const char *stage, double fraction, const char *message, void *user) {
  ms_progress report = {sizeof report, stage, fraction, message};
  return fn(&report, user);
}
