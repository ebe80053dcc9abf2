/*
 * Every function of the C interface, and every failure that a caller can bring about, from plain C11.
 * Argument: a folder to write to.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "phantom.h"

/* Calls a function of the (dst, capacity, needed) kind and checks the protocol. Returns the text, to be freed. */
#define TEXT(call)                         \
  do {                                     \
    size_t capacity = 0, needed = 0;       \
    char *dst = NULL;                      \
    EXPECT(MS_OK, call);                   \
    CHECK(needed > 2);                     \
    text = dst = realloc(text, needed);    \
    memset(dst, '#', needed);              \
    capacity = needed - 1;                 \
    EXPECT(MS_ERR_INVALID_ARGUMENT, call); \
    CHECK(dst[0] == '#');                  \
    capacity = needed;                     \
    EXPECT(MS_OK, call);                   \
    CHECK(strlen(dst) == needed - 1);      \
  } while (0)

static char *text; /* of the last TEXT */

static ms_options quick(void) {
  ms_options options;
  EXPECT(MS_OK, ms_options_init(&options, sizeof options));
  options.initial = "com";
  options.model = "none";
  options.search = "off";
  options.refine = 0;
  options.threads = 2;
  return options;
}

static void test_tables(void) {
  CHECK(strcmp(ms_last_error(), "") == 0);
  CHECK(strchr(ms_version(), '.') != NULL);
  CHECK(strcmp(ms_status_name(MS_OK), "ok") == 0);
  CHECK(strcmp(ms_status_name(MS_ERR_THIN_VOLUME), "thin_volume") == 0);
  CHECK(strcmp(ms_status_name(12345), "code_12345") == 0);
  CHECK(ms_status_exit(MS_OK) == 0 && ms_status_exit(MS_ERR_THIN_VOLUME) == 3 && ms_status_exit(12345) == 1);
  TEXT(ms_options_json(dst, capacity, &needed));
  CHECK(strstr(text, "\"name\":\"trajectories\"") != NULL);
  TEXT(ms_errors_json(dst, capacity, &needed));
  CHECK(strstr(text, "\"name\":\"no_overlap\"") != NULL);
  EXPECT(MS_OK, ms_errors_json(text, strlen(text) + 1, NULL));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_errors_json(NULL, 10, NULL));
}

/* The promise that an older and a newer caller's structs are understood. */
static void test_struct_sizes(ms_engine engine, const ms_image *fixed, const ms_image *moving) {
  struct {
    ms_options options;
    int64_t later;
  } newer;
  ms_result result = 99;

  EXPECT(MS_OK, ms_options_init(&newer.options, sizeof newer));
  CHECK(newer.options.size == sizeof newer && newer.later == 0);
  CHECK(strcmp(newer.options.preset, "default") == 0 && newer.options.refine == -1 && newer.options.tau == 1);
  newer.options.initial = "com";
  newer.options.model = NULL; /* the default */
  newer.options.model = "none";
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &newer.options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_destroy(result));
  newer.later = 1;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register(engine, fixed, moving, &newer.options, NULL, NULL, &result));
  CHECK(result == 0);

  /* a caller of the first version, whose struct ended at cache */
  ms_options older = quick();
  older.smoothness = "neither read nor checked";
  older.size = offsetof(ms_options, uncertainty);
  older.uncertainty = "neither read nor checked";
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &older, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_destroy(result));
  EXPECT(MS_OK, ms_options_init(&older, offsetof(ms_options, uncertainty)));
  CHECK(older.size == offsetof(ms_options, uncertainty) && strcmp(older.uncertainty, "neither read nor checked") == 0);

  /* and one whose struct ended at uncertainty */
  older.uncertainty = "off";
  older.size = offsetof(ms_options, smoothness);
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &older, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_destroy(result));

  static const size_t wrong[] = {0, 1, offsetof(ms_options, uncertainty) - 1, (size_t)1 << 40, (size_t)-1};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ms_options options = quick();
    ms_image image = *fixed;
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_options_init(&options, wrong[i]));
    options.size = wrong[i];
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register(engine, fixed, moving, &options, NULL, NULL, &result));
    image.size = wrong[i];
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register(engine, &image, moving, NULL, NULL, NULL, &result));
  }
}

static void test_handles(const ms_image *fixed, const ms_image *moving, const ms_result result) {
  ms_engine engine = 0, other = 0;
  ms_result none = 99;
  double point[3] = {0, 0, 0};
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_engine_create(NULL, NULL));
  ms_engine_config config = {sizeof config, NULL, ""};
  EXPECT(MS_OK, ms_engine_create(&config, &engine));
  EXPECT(MS_OK, ms_engine_create(NULL, &other));
  CHECK(engine != 0 && engine != other);
  config.size--;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_engine_create(&config, &other));
  CHECK(other == 0);
  EXPECT(MS_OK, ms_engine_destroy(engine));
  EXPECT(MS_ERR_INVALID_HANDLE, ms_engine_destroy(engine));
  EXPECT(MS_ERR_INVALID_HANDLE, ms_register(engine, fixed, moving, NULL, NULL, NULL, &none));
  CHECK(none == 0);
  EXPECT(MS_ERR_INVALID_HANDLE, ms_engine_destroy(result)); /* of the other kind */
  EXPECT(MS_ERR_INVALID_HANDLE, ms_result_destroy(0));
  EXPECT(MS_ERR_INVALID_HANDLE, ms_result_destroy((ms_result)-1));
  EXPECT(MS_ERR_INVALID_HANDLE, ms_result_transform_points((ms_result)1 << 63, point, 1));
}

static void test_bad_input(ms_engine engine, const ms_image *fixed, const ms_image *moving) {
  const ms_options options = quick();
  ms_options bad_options;
  ms_result result;
  ms_image bad;
  float *voxels = malloc(voxel_count(fixed) * sizeof *voxels);

#define REFUSED(code)                                                               \
  do {                                                                              \
    result = 99;                                                                    \
    EXPECT(code, ms_register(engine, &bad, moving, &options, NULL, NULL, &result)); \
    CHECK(result == 0 && strstr(ms_last_error(), "fixed") != NULL);                 \
    EXPECT(code, ms_register(engine, fixed, &bad, &options, NULL, NULL, &result));  \
    CHECK(result == 0 && strstr(ms_last_error(), "moving") != NULL);                \
    bad = *fixed;                                                                   \
  } while (0)

  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register(engine, fixed, moving, &options, NULL, NULL, NULL));
  EXPECT(MS_ERR_EMPTY_VOLUME, ms_register(engine, NULL, moving, &options, NULL, NULL, &result));
  bad = *fixed, bad.voxels = NULL;
  REFUSED(MS_ERR_EMPTY_VOLUME);
  bad.dims[1] = 0;
  REFUSED(MS_ERR_EMPTY_VOLUME);
  bad.dims[1] = -4;
  REFUSED(MS_ERR_EMPTY_VOLUME);
  bad.dims[0] = bad.dims[1] = bad.dims[2] = INT64_MAX;
  REFUSED(MS_ERR_INVALID_ARGUMENT);
  bad.dims[2] = 1;
  REFUSED(MS_ERR_THIN_VOLUME);
  bad.spacing[0] = 0;
  REFUSED(MS_ERR_INVALID_SPACING);
  bad.spacing[2] = -1;
  REFUSED(MS_ERR_INVALID_SPACING);
  bad.origin[1] = NAN;
  REFUSED(MS_ERR_INVALID_SPACING);
  memset(bad.direction, 0, sizeof bad.direction);
  REFUSED(MS_ERR_INVALID_DIRECTION);
  for (size_t i = 0; i < voxel_count(fixed); i++) voxels[i] = i % 2 ? NAN : INFINITY;
  bad.voxels = voxels;
  REFUSED(MS_ERR_NON_FINITE_VOLUME);
  for (size_t i = 0; i < voxel_count(fixed); i++) voxels[i] = 7;
  bad.voxels = voxels;
  REFUSED(MS_ERR_CONSTANT_VOLUME);

#define REFUSED_OPTION(code, member, value)                                              \
  do {                                                                                   \
    bad_options = options;                                                               \
    bad_options.member = value;                                                          \
    EXPECT(code, ms_register(engine, fixed, moving, &bad_options, NULL, NULL, &result)); \
    CHECK(result == 0);                                                                  \
  } while (0)

  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, preset, "slowest");
  CHECK(strstr(ms_last_error(), "slowest") != NULL);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, initial, "\xff\xfe");
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, steps, -1);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, trajectories, 0);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, tau, NAN);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, refine, 1 << 30);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, threads, -1);
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, smoothness, "");
  REFUSED_OPTION(MS_ERR_INVALID_ARGUMENT, smoothness, "100.5");
  CHECK(strstr(ms_last_error(),
               "smoothness is \"100.5\"; it must be one of auto, low, high or a number of mm in [0.1, 100]") != NULL);
  REFUSED_OPTION(MS_ERR_MODEL_NOT_FOUND, model, "/no/such/model.onnx");

  /* masks, the initial transform */
  double initial[12] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
  ms_pair pair = {.size = sizeof pair, .fixed = fixed, .moving = moving, .initial = initial};
  bad = *fixed, bad.voxels = voxels;
#define REFUSED_PAIR(code)                                                        \
  do {                                                                            \
    result = 99;                                                                  \
    EXPECT(code, ms_register_pair(engine, &pair, &options, NULL, NULL, &result)); \
    CHECK(result == 0);                                                           \
  } while (0)
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register_pair(engine, NULL, &options, NULL, NULL, &result));
  pair.size = 8;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  pair.size = sizeof pair;
  memset(voxels, 0, voxel_count(fixed) * sizeof *voxels);
  pair.fixed_mask = &bad;
  REFUSED_PAIR(MS_ERR_EMPTY_MASK);
  voxels[0] = 1;
  bad.spacing[0] *= 2;
  REFUSED_PAIR(MS_ERR_GRID_MISMATCH);
  pair.fixed_mask = NULL, pair.moving_mask = &bad;
  REFUSED_PAIR(MS_ERR_GRID_MISMATCH);
  pair.moving_mask = NULL, pair.rigid = &bad;
  REFUSED_PAIR(MS_ERR_GRID_MISMATCH);
  bad.spacing[0] /= 2, voxels[0] = 0.5f;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  voxels[0] = 0;
  REFUSED_PAIR(MS_ERR_EMPTY_MASK);
  pair.rigid = NULL;
  double points[] = {fixed->origin[0],  fixed->origin[1],  fixed->origin[2],
                     moving->origin[0], moving->origin[1], moving->origin[2]};
  const char *names[] = {"nose"};
  pair.landmark_count = 1;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT); /* of NULL */
  pair.landmarks = points, pair.landmark_names = names;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT); /* by no error */
  CHECK(strstr(ms_last_error(), "landmark_error") != NULL);
  ms_options steered = options;
  steered.landmark_error = 1, points[4] += 1e5;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register_pair(engine, &pair, &steered, NULL, NULL, &result));
  CHECK(strstr(ms_last_error(), "nose") != NULL);
  points[4] = NAN, pair.landmark_names = NULL;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register_pair(engine, &pair, &steered, NULL, NULL, &result));
  pair.landmark_count = (size_t)-1;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_register_pair(engine, &pair, &steered, NULL, NULL, &result));
  pair.landmarks = NULL, pair.landmark_count = 0;
  initial[10] = 0;
  REFUSED_PAIR(MS_ERR_SINGULAR_TRANSFORM);
  initial[10] = 1, initial[3] = 1e6;
  ms_options stay = options;
  stay.initial = "none";
  EXPECT(MS_ERR_NO_OVERLAP, ms_register_pair(engine, &pair, &stay, NULL, NULL, &result));
  initial[3] = 0;
  float *mm = calloc(3 * voxel_count(fixed), sizeof *mm);
  bad = *fixed, bad.voxels = NULL;
  pair.initial_field = &bad;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  bad.voxels = mm, mm[4] = NAN;
  REFUSED_PAIR(MS_ERR_SINGULAR_TRANSFORM);
  mm[4] = 0, bad.origin[2] += 1e3;
  REFUSED_PAIR(MS_ERR_GRID_MISMATCH);
  free(mm);

  /* channels */
  pair.initial_field = NULL, bad = *fixed, bad.voxels = voxels;
  ms_channel channel = {.size = sizeof channel, .fixed = &bad, .moving = moving};
  const ms_channel *channels[] = {&channel, NULL};
  pair.channel_count = 1;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT); /* no array */
  pair.channels = channels, pair.channel_count = 2;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT); /* one is NULL */
  pair.channel_count = (size_t)-1;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  pair.channel_count = 1, channel.size = 8;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  channel.size = sizeof channel;
  REFUSED_PAIR(MS_ERR_CONSTANT_VOLUME);
  CHECK(strstr(ms_last_error(), "channel 2, fixed volume is constant") != NULL);
  channel.labels = 1, channel.name = "organs";
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT); /* the moving image holds no labels */
  CHECK(strstr(ms_last_error(), "organs, moving") != NULL);
  channel.fixed = fixed, channel.moving = moving, channel.labels = 0, channel.weight = -1;
  REFUSED_PAIR(MS_ERR_INVALID_ARGUMENT);
  channel.weight = 0, channel.moving = NULL;
  REFUSED_PAIR(MS_ERR_EMPTY_VOLUME);
  bad = *moving, bad.origin[0] += 1e4, channel.moving = &bad;
  REFUSED_PAIR(MS_ERR_NO_OVERLAP);
  free(voxels);
}

/* Returns a copy of an image in which what is brighter than half is 1 and the rest 0. */
static ms_image brighter(const ms_image *image) {
  ms_image labels = *image;
  float *voxels = malloc(voxel_count(image) * sizeof *voxels);
  for (size_t i = 0; i < voxel_count(image); i++) voxels[i] = image->voxels[i] > 80;
  labels.voxels = voxels;
  return labels;
}

/* The same images again and a label map of both drive the registration, and the metrics say how they came to match. */
static void test_channels(ms_engine engine, const ms_image *fixed, const ms_image *moving) {
  ms_image here = brighter(fixed), there = brighter(moving);
  ms_channel again = {.size = sizeof again, .fixed = fixed, .moving = moving, .weight = 0.5};
  ms_channel labels = {.size = sizeof labels, .name = "bright", .fixed = &here, .moving = &there, .labels = 1};
  const ms_channel *channels[] = {&again, &labels};
  ms_pair pair = {.size = sizeof pair, .fixed = fixed, .moving = moving, .channels = channels, .channel_count = 2};
  ms_options options = quick();
  options.refine = 3;
  ms_result result = 0;
  EXPECT(MS_OK, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
  size_t needed = 0;
  EXPECT(MS_OK, ms_result_metrics(result, NULL, 0, &needed));
  char *metrics = malloc(needed);
  EXPECT(MS_OK, ms_result_metrics(result, metrics, needed, &needed));
  CHECK(strstr(metrics, "\"name\":\"channel 2\",\"weight\":0.5,\"similarity\":\"ncc\"") != NULL);
  CHECK(strstr(metrics, "\"name\":\"bright\",\"weight\":1,\"similarity\":\"labels\",\"labels\":1") != NULL);
  EXPECT(MS_OK, ms_result_destroy(result));

  /* of a caller that knows no such member they are not read */
  pair.size = offsetof(ms_pair, channels);
  EXPECT(MS_OK, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_metrics(result, metrics, needed, &needed));
  CHECK(strstr(metrics, "\"channels\":null") != NULL);
  EXPECT(MS_OK, ms_result_destroy(result));
  free(metrics);
  free((void *)here.voxels);
  free((void *)there.voxels);
}

/* A sentence of whoever read the files becomes a warning and a reason, and a verdict that was good is check. */
static void test_doubts(ms_engine engine, const ms_image *fixed, const ms_image *alike) {
  const char *sentences[] = {"fixed: a.nii says two places.", "moving: b.nii says two places."};
  const char *const torn[] = {"fixed: a.nii says two places.", NULL};
  const ms_options options = quick();
  const struct {
    size_t size, count;
    const char *const *doubts;
    ms_status code;
    const char *grade;
  } cases[] = {
      {sizeof(ms_pair), 2, sentences, MS_OK, "check"},
      {sizeof(ms_pair), 0, sentences, MS_OK, "good"},
      {sizeof(ms_pair), 0, NULL, MS_OK, "good"},
      {offsetof(ms_pair, doubts), 2, NULL, MS_OK, "good"}, /* a caller that knows no doubts */
      {sizeof(ms_pair), 1, NULL, MS_ERR_INVALID_ARGUMENT, NULL},
      {sizeof(ms_pair), (size_t)-1, sentences, MS_ERR_INVALID_ARGUMENT, NULL},
      {sizeof(ms_pair), 2, torn, MS_ERR_INVALID_ARGUMENT, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ms_pair pair = {.size = cases[i].size,
                          .fixed = fixed,
                          .moving = alike,
                          .doubts = cases[i].doubts,
                          .doubt_count = cases[i].count};
    ms_result result = 99;
    EXPECT(cases[i].code, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
    if (cases[i].code != MS_OK) {
      CHECK(result == 0 && strstr(ms_last_error(), "doubt") != NULL);
      continue;
    }
    TEXT(ms_result_metrics(result, dst, capacity, &needed));
    char grade[32];
    snprintf(grade, sizeof grade, "\"grade\":\"%s\"", cases[i].grade);
    CHECK(strstr(text, grade) != NULL);
    for (size_t k = 0; k < 2; k++) {
      int times = 0;
      for (const char *at = text; (at = strstr(at, sentences[k])) != NULL; at++) times++;
      CHECK(times == (i == 0 ? 2 : 0)); /* a warning and a reason */
    }
    EXPECT(MS_OK, ms_result_destroy(result));
  }
}

/* The verdict of the metrics, typed: of a pair that fits and is doubted, as it is and as an older caller knows it. */
static void test_verdict(ms_engine engine, const ms_image *fixed, const ms_image *alike) {
  const char *const doubts[] = {"fixed: \"a.nii\" says <two> places.", "moving: b.nii says two places."};
  const ms_options options = quick();
  for (size_t count = 0; count <= 2; count += 2) {
    const ms_pair pair = {sizeof pair, fixed, alike, .doubts = doubts, .doubt_count = count};
    ms_result result = 99;
    EXPECT(MS_OK, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
    struct {
      ms_verdict known;
      double later;
    } newer = {.known.size = sizeof newer, .later = 7};
    EXPECT(MS_OK, ms_result_verdict(result, &newer.known));
    const ms_verdict verdict = newer.known;
    CHECK(verdict.size == sizeof newer && newer.later == 0);
    CHECK(verdict.grade == (count > 0 ? MS_CHECK : MS_GOOD) && verdict.reason_count == count);
    CHECK(verdict.error_mm > 0 && verdict.error_mm < 10 && verdict.njd_percent == 0);
    TEXT(ms_result_metrics(result, dst, capacity, &needed));
    const char *error = strstr(text, "\"error_mm\":");
    CHECK(error != NULL && strtod(strchr(error, ':') + 1, NULL) == verdict.error_mm);
    for (size_t i = 0; i < count; i++) {
      TEXT(ms_result_reason(result, i, dst, capacity, &needed));
      CHECK(strcmp(text, doubts[i]) == 0);
    }
    size_t needed = 99;
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_reason(result, count, NULL, 0, &needed));
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_reason(result, (size_t)-1, NULL, 0, &needed));
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_verdict(result, NULL));
    newer.known.size = offsetof(ms_verdict, njd_percent);
    EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_verdict(result, &newer.known));
    CHECK(needed == 99 && newer.known.grade == verdict.grade);
    EXPECT(MS_OK, ms_result_destroy(result));
  }
}

/* Half-way, each image is moved by half of the 3 mm between them. */
static void check_halfway(ms_result result, const ms_image *fixed, const ms_image *moving, double apart) {
  ms_result to_fixed = 99, to_moving = 99;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_halfway(result, NULL, &to_moving));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_halfway(result, &to_fixed, NULL));
  EXPECT(MS_OK, ms_result_halfway(result, &to_fixed, &to_moving));
  ms_image grid = {.size = sizeof grid}, other = {.size = sizeof other};
  EXPECT(MS_OK, ms_result_geometry(to_fixed, &grid));
  EXPECT(MS_OK, ms_result_geometry(to_moving, &other));
  CHECK(memcmp(&grid, &other, sizeof grid) == 0 && memcmp(grid.dims, fixed->dims, sizeof grid.dims) == 0);
  double here[3] = {1, 2, 3}, there[3] = {1, 2, 3};
  EXPECT(MS_OK, ms_result_transform_points(to_fixed, here, 1));
  EXPECT(MS_OK, ms_result_transform_points(to_moving, there, 1));
  CHECK(fabs(here[0] - 1 + apart / 2) < 1e-3 && fabs(there[0] - 1 - apart / 2) < 1e-3);
  const size_t n = voxel_count(&grid);
  float *one = malloc(n * sizeof *one), *two = malloc(n * sizeof *two);
  EXPECT(MS_OK, ms_result_apply(to_fixed, fixed, MS_LINEAR, 0, one, n));
  EXPECT(MS_OK, ms_result_apply(to_moving, moving, MS_LINEAR, 0, two, n));
  double differ = 0, most = 0;
  for (size_t i = 0; i < n; i++) differ += fabs(one[i] - two[i]), most += fabs(one[i]);
  CHECK(differ < 0.2 * most);
  ms_verdict verdict = {.size = sizeof verdict};
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_verdict(to_moving, &verdict));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_reason(to_moving, 0, NULL, 0, NULL));
  EXPECT(MS_OK, ms_result_destroy(to_fixed));
  EXPECT(MS_OK, ms_result_destroy(to_moving));
  free(one), free(two);
}

/* A result's whole field, given back with nothing left to do, is the result. */
static void test_initial_field(ms_engine engine, const ms_image *fixed, const ms_image *moving) {
  const size_t n = 3 * voxel_count(fixed);
  float *mm = malloc(n * sizeof *mm), *again = malloc(n * sizeof *again);
  ms_options options = quick();
  options.refine = 3;
  ms_result result = 0;
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_field_mm(result, mm, n));
  EXPECT(MS_OK, ms_result_destroy(result));
  ms_image field = *fixed;
  field.voxels = mm;
  ms_pair pair = {.size = sizeof pair, .fixed = fixed, .moving = moving, .initial_field = &field};
  options.refine = 0;
  EXPECT(MS_OK, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_field_mm(result, again, n));
  EXPECT(MS_OK, ms_result_destroy(result));
  double most = 0, moved = 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs(again[i] - mm[i]));
    moved = fmax(moved, fabs(mm[i]));
  }
  CHECK(most < 1e-3 && moved > 0.1);

  /* of a caller that knows no such member it is not read */
  for (size_t i = 0; i < n; i += 3) mm[i] += 3;
  pair.size = offsetof(ms_pair, initial_field);
  EXPECT(MS_OK, ms_register_pair(engine, &pair, &options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_field_mm(result, again, n));
  EXPECT(MS_OK, ms_result_destroy(result));
  most = 0;
  for (size_t i = 0; i < n; i++) most = fmax(most, fabs(again[i] - mm[i]));
  CHECK(most > 1);
  free(mm);
  free(again);
}

struct reports {
  int count, cancel_at, ordered;
  double last;
  ms_engine destroy;
};

static int on_progress(const ms_progress *p, void *user) {
  struct reports *r = user;
  r->ordered &= p->size >= sizeof *p && p->fraction >= r->last && p->fraction <= 1 && *p->stage && p->message != NULL;
  r->last = p->fraction;
  if (r->destroy) EXPECT(MS_OK, ms_engine_destroy(r->destroy));
  r->destroy = 0;
  return ++r->count == r->cancel_at;
}

static void test_progress(ms_engine engine, const ms_image *fixed, const ms_image *moving) {
  const ms_options options = quick();
  ms_result result = 99;
  struct reports seen = {.ordered = 1};
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &options, on_progress, &seen, &result));
  CHECK(seen.ordered && seen.count >= 2 && seen.last == 1);
  EXPECT(MS_OK, ms_result_destroy(result));
  struct reports cancel = {.ordered = 1, .cancel_at = 1};
  EXPECT(MS_ERR_CANCELLED, ms_register(engine, fixed, moving, &options, on_progress, &cancel, &result));
  CHECK(result == 0 && cancel.count == 1);

  /* an engine destroyed by its own callback stays alive until the registration ends */
  struct reports destroy = {.ordered = 1};
  EXPECT(MS_OK, ms_engine_create(NULL, &destroy.destroy));
  EXPECT(MS_OK, ms_register(destroy.destroy, fixed, moving, &options, on_progress, &destroy, &result));
  EXPECT(MS_OK, ms_result_destroy(result));
}

/* The uncertainty: positive everywhere, in mm, and the same from a file. */
static void test_uncertainty(ms_engine engine, const ms_image *fixed, const ms_image *moving, const char *folder) {
  const size_t n = voxel_count(fixed);
  float *sd = malloc(n * sizeof *sd), *again = malloc(n * sizeof *again);
  ms_options options = quick();
  ms_result result, loaded;
  options.uncertainty = "on"; /* and neither search nor network: the costs tell of any result */
  EXPECT(MS_OK, ms_register(engine, fixed, moving, &options, NULL, NULL, &result));
  EXPECT(MS_OK, ms_result_uncertainty(result, sd, n));
  size_t sound = 0;
  for (size_t i = 0; i < n; i++) sound += sd[i] > 0 && sd[i] < 100;
  CHECK(sound == n);
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_uncertainty(result, sd, 3 * n));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_uncertainty(result, NULL, n));
  TEXT(ms_result_metrics(result, dst, capacity, &needed));
  CHECK(strstr(text, "\"uncertainty\":{\"source\":\"search\"") != NULL);
  const char *verdict = strstr(text, "\"verdict\":{\"grade\":\"");
  CHECK(verdict != NULL && strstr(verdict, "\"reasons\":[") != NULL && strstr(verdict, "\"error_mm\":") != NULL);

  char path[1024];
  snprintf(path, sizeof path, "%s/uncertainty.snapshot", folder);
  EXPECT(MS_OK, ms_result_save(result, path));
  EXPECT(MS_OK, ms_result_load(path, &loaded));
  EXPECT(MS_OK, ms_result_uncertainty(loaded, again, n));
  CHECK(memcmp(again, sd, n * sizeof *sd) == 0);
  remove(path);
  EXPECT(MS_OK, ms_result_destroy(loaded));
  EXPECT(MS_OK, ms_result_destroy(result));
  free(sd), free(again);
}

/* The outputs of one registration, each against another. */
static void test_result(ms_result result, const ms_image *fixed, const ms_image *moving, const char *folder) {
  const size_t n = voxel_count(fixed);
  float *u = malloc(3 * n * sizeof *u), *mm = malloc(3 * n * sizeof *mm), *warped = malloc(n * sizeof *warped);
  float *other = malloc(3 * voxel_count(moving) * sizeof *other), *again = malloc(3 * n * sizeof *again);

  ms_image grid = {.size = sizeof grid};
  EXPECT(MS_OK, ms_result_geometry(result, &grid));
  CHECK(memcmp(grid.dims, fixed->dims, sizeof grid.dims) == 0 &&
        memcmp(grid.spacing, fixed->spacing, sizeof grid.spacing) == 0);
  CHECK(memcmp(grid.origin, fixed->origin, sizeof grid.origin) == 0 && grid.voxels == NULL && grid.size == sizeof grid);
  CHECK(memcmp(grid.direction, fixed->direction, sizeof grid.direction) == 0);
  grid.size = 3;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_geometry(result, &grid));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_geometry(result, NULL));

  /* centres of mass alone: every displacement is the same translation, 3 mm along x */
  double m[12];
  EXPECT(MS_OK, ms_result_initial(result, m));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_initial(result, NULL));
  CHECK(m[0] == 1 && m[1] == 0 && m[5] == 1 && m[10] == 1 && fabs(m[3] - 3) < 0.5 && fabs(m[7]) < 0.1 &&
        fabs(m[11]) < 0.1);
  EXPECT(MS_OK, ms_result_field(result, u, 3 * n));
  EXPECT(MS_OK, ms_result_field_mm(result, mm, 3 * n));
  for (size_t i = 0; i < n; i++)
    for (size_t axis = 0; axis < 3; axis++) { /* planes z, y, x in voxels; x, y, z in mm */
      CHECK(fabs(u[(2 - axis) * n + i] * fixed->spacing[axis] - m[4 * axis + 3]) < 1e-4);
      CHECK(fabs(mm[3 * i + axis] - m[4 * axis + 3]) < 1e-4);
    }
  double points[6] = {1, 2, 3, -4, 0, 2};
  EXPECT(MS_OK, ms_result_transform_points(result, points, 2));
  CHECK(fabs(points[0] - 1 - m[3]) < 1e-4 && fabs(points[5] - 2 - m[11]) < 1e-4);
  EXPECT(MS_OK, ms_result_transform_points(result, NULL, 0));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_transform_points(result, NULL, 1));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_transform_points(result, points, (size_t)-1));
  EXPECT(MS_OK, ms_result_jacobian(result, other, n));
  for (size_t i = 0; i < n; i++) CHECK(fabs(other[i] - 1) < 1e-4);

  /* the inverse, on the moving grid, is a result too */
  ms_result inverse = 99;
  double residual = -1;
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_inverse(result, NULL, &residual));
  EXPECT(MS_OK, ms_result_inverse(result, &inverse, NULL));
  EXPECT(MS_OK, ms_result_destroy(inverse));
  EXPECT(MS_OK, ms_result_inverse(result, &inverse, &residual));
  CHECK(residual >= 0 && residual < 1e-2);
  grid.size = sizeof grid;
  EXPECT(MS_OK, ms_result_geometry(inverse, &grid));
  CHECK(memcmp(grid.dims, moving->dims, sizeof grid.dims) == 0);
  EXPECT(MS_OK, ms_result_field_mm(inverse, other, 3 * voxel_count(moving)));
  for (size_t axis = 0; axis < 3; axis++) CHECK(fabs(other[axis] + m[4 * axis + 3]) < 1e-2);
  EXPECT(MS_OK, ms_result_apply(inverse, fixed, MS_LINEAR, 0, other, voxel_count(moving)));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_warped(inverse, other, voxel_count(moving)));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_metrics(inverse, NULL, 0, NULL));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_save(inverse, "inverse"));
  EXPECT(MS_OK, ms_result_destroy(inverse));

  check_halfway(result, fixed, moving, m[3]);

  /* applying the transform to the moving image is the warped image */
  EXPECT(MS_OK, ms_result_warped(result, warped, n));
  double before = 0, after = 0;
  EXPECT(MS_OK, ms_result_apply(result, moving, MS_LINEAR, -5, again, n));
  for (size_t i = 0; i < n; i++) {
    if (again[i] != -5) CHECK(fabs(again[i] - warped[i]) < 1e-3);
    after += fabs(warped[i] - fixed->voxels[i]);
    before += fabs(fixed->voxels[i]);
  }
  CHECK(after < 0.2 * before);
  EXPECT(MS_OK, ms_result_apply(result, moving, MS_NEAREST, 0, again, n));
  for (size_t i = 0, found; i < n; i += 97) { /* nearest makes no new values */
    found = again[i] == 0;
    for (size_t j = 0; j < voxel_count(moving) && !found; j++) found = moving->voxels[j] == again[i];
    CHECK(found);
  }
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_apply(result, moving, 7, 0, again, n));
  EXPECT(MS_ERR_EMPTY_VOLUME, ms_result_apply(result, NULL, MS_LINEAR, 0, again, n));
  ms_image thin = *fixed;
  thin.dims[0] = thin.dims[1] = 1;
  EXPECT(MS_ERR_THIN_VOLUME, ms_result_apply(result, &thin, MS_LINEAR, 0, again, n));

  /* buffers of another size */
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_field(result, u, 3 * n - 1));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_field(result, NULL, 3 * n));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_field_mm(result, mm, n));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_jacobian(result, other, 3 * n));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_warped(result, warped, n + 1));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_uncertainty(result, again, n)); /* not asked for */
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_apply(result, moving, MS_LINEAR, 0, again, (size_t)-1));

  TEXT(ms_result_metrics(result, dst, capacity, &needed));
  CHECK(strstr(text, "\"njd_percent\":0,") != NULL && strstr(text, ms_version()) != NULL);

  /* saved, loaded, the same; damaged, refused; nothing left of what could not be written */
  char path[1024], broken[1024];
  snprintf(path, sizeof path, "%s/result.snapshot", folder);
  snprintf(broken, sizeof broken, "%s/broken.snapshot", folder);
  ms_result loaded = 99;
  EXPECT(MS_OK, ms_result_save(result, path));
  EXPECT(MS_OK, ms_result_load(path, &loaded));
  EXPECT(MS_OK, ms_result_field(loaded, again, 3 * n));
  CHECK(memcmp(again, u, 3 * n * sizeof *u) == 0);
  EXPECT(MS_OK, ms_result_warped(loaded, again, n));
  CHECK(memcmp(again, warped, n * sizeof *warped) == 0);
  EXPECT(MS_OK, ms_result_inverse(loaded, &inverse, NULL));
  EXPECT(MS_OK, ms_result_destroy(inverse));
  EXPECT(MS_OK, ms_result_destroy(loaded));
  FILE *in = fopen(path, "rb"), *out = fopen(broken, "wb");
  for (int i = 0, c; i < 300 && (c = fgetc(in)) != EOF; i++) fputc(c, out);
  fclose(in);
  fclose(out);
  loaded = 99;
  EXPECT(MS_ERR_SNAPSHOT_CORRUPT, ms_result_load(broken, &loaded));
  CHECK(loaded == 0);
  EXPECT(MS_ERR_INPUT_UNREADABLE, ms_result_load("/no/such/file", &loaded));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_load(NULL, &loaded));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_load(path, NULL));
  EXPECT(MS_ERR_OUTPUT_UNWRITABLE, ms_result_save(result, "/no/such/folder/result"));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_result_save(result, NULL));
  remove(path);
  remove(broken);
  free(u), free(mm), free(warped), free(other), free(again);
}

static void test_models(ms_engine engine, const char *folder) {
  char path[1024];
  TEXT(ms_model_list(engine, dst, capacity, &needed));
  CHECK(text[0] == '[');
  TEXT(ms_devices(engine, dst, capacity, &needed));
  CHECK(strstr(text, "{\"name\":\"cpu\",\"usable\":") != NULL);
  size_t needed = 0;
  EXPECT(MS_ERR_MODEL_NOT_FOUND, ms_model_verify(engine, "no such model", NULL, 0, &needed));
  EXPECT(MS_ERR_INVALID_ARGUMENT, ms_model_verify(engine, NULL, NULL, 0, &needed));
  snprintf(path, sizeof path, "%s/broken.onnx", folder);
  FILE *out = fopen(path, "wb");
  fputs("no model", out);
  fclose(out);
  EXPECT(MS_ERR_MODEL_CORRUPT, ms_model_verify(engine, path, NULL, 0, &needed));
  remove(path);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  test_tables();

  ms_image fixed = phantom(20, 18, 16, 1.5, 0), moving = phantom(24, 22, 18, 1.25, 3);
  const ms_options options = quick();
  ms_engine engine = 0;
  ms_result result = 0;
  EXPECT(MS_OK, ms_engine_create(NULL, &engine));
  EXPECT(MS_OK, ms_register(engine, &fixed, &moving, &options, NULL, NULL, &result));
  test_handles(&fixed, &moving, result);
  test_struct_sizes(engine, &fixed, &moving);
  test_uncertainty(engine, &fixed, &moving, argv[1]);
  test_bad_input(engine, &fixed, &moving);
  test_progress(engine, &fixed, &moving);
  test_initial_field(engine, &fixed, &moving);
  test_channels(engine, &fixed, &moving);
  ms_image alike = phantom(20, 18, 16, 1.5, 0.01);
  test_doubts(engine, &fixed, &alike);
  test_verdict(engine, &fixed, &alike);
  free((void *)alike.voxels);
  test_models(engine, argv[1]);
  EXPECT(MS_OK, ms_engine_destroy(engine)); /* results outlive their engine */
  test_result(result, &fixed, &moving, argv[1]);
  EXPECT(MS_OK, ms_result_destroy(result));
  EXPECT(MS_ERR_INVALID_HANDLE, ms_result_warped(result, NULL, 0));

  free((void *)fixed.voxels), free((void *)moving.voxels), free(text);
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
