/* Expectations of the C tests: what does not hold is printed and counted. */
#ifndef MORPHSEEK_TEST_CHECK_H
#define MORPHSEEK_TEST_CHECK_H

#include <stdio.h>
#include <string.h>

#include "morphseek.h"

static int failures;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                    \
    }                                                                \
  } while (0)

/* Expects a status and, for a failure, a message. */
#define EXPECT(code, call) expect(code, call, #call, __LINE__)

static inline void expect(ms_status want, ms_status got, const char *call, int line) {
  if (got != want) {
    printf("%s:%d: %s is %s", __FILE__, line, call, ms_status_name(got));
    printf(", not %s (%s)\n", ms_status_name(want), ms_last_error());
    failures++;
  } else if (want != MS_OK && strlen(ms_last_error()) < 10) {
    printf("%s:%d: %s fails without a message\n", __FILE__, line, call);
    failures++;
  }
}

#endif
