#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * A thread's texts, made when first needed and freed at its end. Not _Thread_local: a library that holds the Go runtime takes
 * all its thread-local storage from the small block that dlopen has left for such libraries, and so must have next to none.
 */
struct texts {
  char error[4096];
  char name[64];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) { pthread_key_create(&key, free); }

static struct texts *own_texts(void) {
  static struct texts shared; /* for want of memory */
  pthread_once(&once, make_key);
  struct texts *texts = pthread_getspecific(key);
  if (texts == NULL) {
    texts = calloc(1, sizeof *texts);
    if (texts == NULL || pthread_setspecific(key, texts) != 0) {
      free(texts);
      return &shared;
    }
  }
  return texts;
}

static char *keep(char *dst, size_t capacity, const char *text, size_t n) {
  if (n > capacity - 1) {
    n = capacity - 1;
    while (n > 0 && (text[n] & 0xC0) == 0x80) --n; /* no part of a character */
  }
  memcpy(dst, text, n);
  dst[n] = 0;
  return dst;
}

void shim_set_error(const char *text, size_t n) {
  struct texts *texts = own_texts();
  keep(texts->error, sizeof texts->error, text, n);
}

char *shim_error(void) { return own_texts()->error; }

char *shim_keep_name(const char *text, size_t n) {
  struct texts *texts = own_texts();
  return keep(texts->name, sizeof texts->name, text, n);
}

int shim_progress(ms_progress_fn fn, const char *stage, double fraction, const char *message, void *user) {
  ms_progress report = {sizeof report, stage, fraction, message};
  return fn(&report, user);
}
