/*
 * morphseek.h - the C interface of MorphSeek, deformable registration of 3-D medical images.
 *
 * Research software; not a medical device.
 *
 *     ms_engine engine;
 *     ms_result result;
 *     if (ms_engine_create(NULL, &engine) || ms_register(engine, &fixed, &moving, NULL, NULL, NULL, &result)) {
 *         fprintf(stderr, "%s\n", ms_last_error());
 *         exit(1);
 *     }
 *     ms_result_warped(result, warped, voxels);
 *     ms_result_destroy(result);
 *     ms_engine_destroy(engine);
 *
 * # Status
 *
 * Every function that can fail returns a status: MS_OK, or the code of the failure, with a sentence for people in
 * ms_last_error(). Where a function fails, its outputs are as they were, a handle it would have made is 0, and no partial
 * file is left. Each function's comment lists the codes that are its own; besides these, any function may return
 *   MS_ERR_INTERNAL          a defect of this library
 *   MS_ERR_INVALID_ARGUMENT  a NULL pointer where one is needed, a struct whose size is not one (see below)
 *   MS_ERR_INVALID_HANDLE    a handle that was destroyed, never was, or is of the other kind.
 *
 * # Structs
 *
 * Every struct begins with its size, which the caller sets to sizeof of the struct. A library newer than its caller takes
 * the members that the caller does not know at their defaults; one older than its caller accepts members that it does not
 * know only as zero bytes, and otherwise returns MS_ERR_INVALID_ARGUMENT. Members are only ever added, at the end.
 *
 * # Memory
 *
 * The caller owns what it passes in, and the library does not keep it after the function returns. What comes out is written
 * into the caller's buffers, whose capacity is passed with them and checked; handles own the rest until they are destroyed.
 * Voxels are read in place, never copied; results are written once.
 *
 * Functions that return text take (dst, capacity, needed): they write a string with its terminating NUL to dst, and the
 * number of bytes that takes to *needed, which may be NULL. With dst NULL and capacity 0 only *needed is written. Text that
 * does not fit is not written: MS_ERR_INVALID_ARGUMENT. All text is UTF-8.
 *
 * # Threads
 *
 * Every function may be called from any thread at any time, with the same handles too. A handle destroyed while another
 * thread uses it stays alive until that use ends. ms_last_error() belongs to the calling thread.
 *
 * # Process
 *
 * The library contains the Go runtime: it starts threads of its own, it cannot be unloaded (dlclose does nothing), and after
 * fork() the child must exec before it calls the library, or the call may hang. Its signal handlers pass on what is not its
 * own. Install your own handlers with SA_ONSTACK (sigaction, not signal): Go's threads have small stacks of their own, and a
 * handler that runs on one of them without that flag damages the process.
 *
 * # Conventions
 *
 * Physical space is LPS in millimetres, as ITK's. Voxel buffers are contiguous with x fastest: voxel (i, j, k) is
 * at (k * dims[1] + j) * dims[0] + i. A transform maps a point of the fixed image to the point of the moving image that is
 * sampled there (the pull-back direction): warped(x) = moving(x + u(x)).
 */
#ifndef MORPHSEEK_H
#define MORPHSEEK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------------- Status codes */

/* The result of a call. Codes are never renumbered or reused; a newer library may return ones that are not listed here. */
typedef int32_t ms_status;

enum {
  MS_OK = 0,
  /* errors: written by go generate from engine/fault/fault.go */
  MS_ERR_INTERNAL = 1,            /* a defect of this library */
  MS_ERR_INVALID_ARGUMENT = 2,    /* an option or argument outside its range */
  MS_ERR_INVALID_HANDLE = 3,      /* a closed or foreign handle */
  MS_ERR_CANCELLED = 4,           /* the caller asked to stop */
  MS_ERR_OUT_OF_MEMORY = 5,       /* too little memory for these images */
  MS_ERR_EMPTY_VOLUME = 10,       /* no voxels */
  MS_ERR_NON_FINITE_VOLUME = 11,  /* nothing but NaN or Inf */
  MS_ERR_CONSTANT_VOLUME = 12,    /* every voxel has the same value */
  MS_ERR_THIN_VOLUME = 13,        /* too few voxels along an axis, or a slice and a volume */
  MS_ERR_INVALID_SPACING = 14,    /* zero, negative or non-finite spacing, or a non-finite origin */
  MS_ERR_INVALID_DIRECTION = 15,  /* a singular direction matrix */
  MS_ERR_EMPTY_MASK = 16,         /* a mask that selects nothing */
  MS_ERR_GRID_MISMATCH = 17,      /* a mask, label map or field on another grid than its image */
  MS_ERR_NO_OVERLAP = 18,         /* the volumes do not overlap after the initial transform */
  MS_ERR_SINGULAR_TRANSFORM = 19, /* an initial transform that cannot be inverted */
  MS_ERR_MODEL_NOT_FOUND = 30,    /* no model of that name or path */
  MS_ERR_MODEL_CORRUPT = 31,      /* a truncated model, or no MorphSeek model at all */
  MS_ERR_MODEL_TAMPERED = 32,     /* weights whose sha256 differs from the manifest's */
  MS_ERR_MODEL_VERSION = 33,      /* a model format that this library does not know */
  MS_ERR_MODEL_EXTERNAL = 34,     /* a model that points at files outside itself */
  MS_ERR_RUNTIME_MISSING = 35,    /* ONNX Runtime was not found or does not load */
  MS_ERR_RUNTIME_FAILED = 36,     /* ONNX Runtime reported an error */
  MS_ERR_DEVICE_UNAVAILABLE = 37, /* the device asked for is not there */
  MS_ERR_INPUT_UNREADABLE = 50,   /* an input file that is missing or cannot be read */
  MS_ERR_OUTPUT_UNWRITABLE = 51,  /* a file or folder that cannot be written */
  MS_ERR_DISK_FULL = 52,          /* no space left where a file is written */
  MS_ERR_SNAPSHOT_CORRUPT = 53    /* a truncated, tampered or foreign result file */
  /* end of errors */
};

/* ------------------------------------------------------------------------------------------------------- Types, structs */

/* Handles: opaque numbers, never reused in a process, 0 is none. */
typedef uint64_t ms_engine; /* ONNX Runtime and its open models; make one and keep it */
typedef uint64_t ms_result; /* a finished registration, immutable */

/* What an engine is made with. */
typedef struct ms_engine_config {
  size_t size;
  const char *runtime_library; /* path of the ONNX Runtime library; NULL or "": MORPHSEEK_ORT_LIBRARY, or else beside
                                  this library, in the `onnxruntime` Python package, on the system's path */
  const char *model_dir;       /* a further folder of models; NULL or "": none */
} ms_engine_config;

/* How to register. ms_options_init() sets the defaults; ms_options_json() tells every member's meaning, default and
 * range. A NULL string takes the default; a number that may stand in a word's place is given as text. */
typedef struct ms_options {
  size_t size;
  /* options: written by go generate from engine/internal/option/table.go */
  const char *preset;
  const char *model;
  const char *initial;
  const char *search;
  int32_t steps;
  int32_t trajectories;
  double tau;
  int32_t refine;
  const char *similarity;
  const char *device;
  int32_t threads;
  uint64_t seed;
  const char *cache;
  const char *uncertainty;
  const char *smoothness;
  const char *along;
  const char *symmetric;
  double landmark_error;
  /* end of options */
} ms_options;

/* A scalar volume and where it lies: the centre of voxel (i, j, k) is at origin + direction * (spacing .* (i, j, k)). */
typedef struct ms_image {
  size_t size;
  int64_t dims[3];     /* voxels along x, y, z; 1 along one axis alone makes a slice, which goes with slices */
  double spacing[3];   /* mm, positive */
  double origin[3];    /* mm, LPS */
  double direction[9]; /* row-major; column c is the unit vector of index axis c */
  const float *voxels; /* dims[0] * dims[1] * dims[2] of them; not read where only the grid matters */
} ms_image;

/* One more image of both sides (FLAIR beside T1), or one more label map, that drives the registration. Each lies on a grid of
 * its own in the space of its side's first image. */
typedef struct ms_channel {
  size_t size;
  const char *name; /* for messages and metrics; NULL: its number */
  const ms_image *fixed;
  const ms_image *moving;
  double weight;  /* beside the 1 of the pair's own images; 0: 1 */
  int32_t labels; /* not 0: both are label maps, whole numbers with 0 for the background; structures of the same number
                     are brought onto each other */
} ms_channel;

/* What to register, where two images alone do not say it all. */
typedef struct ms_pair {
  size_t size;
  const ms_image *fixed;
  const ms_image *moving;
  const ms_image *fixed_mask;    /* on the fixed image's grid, non-zero selects; NULL: everything */
  const ms_image *moving_mask;   /* on the moving image's grid */
  const double *initial;         /* 12 numbers, the row-major 3x4 matrix [M | t] of p -> M p + t, fixed to moving, LPS
                                  mm: where the initial alignment starts, or stays with options.initial "none" or
                                  "com"; NULL: not known */
  const ms_image *initial_field; /* displacements d before it, p -> initial(p + d(p)), in LPS mm on any grid, x, y, z
                                    interleaved: 3 floats a voxel, as ms_result_field_mm writes them. The deformable
                                    stages go on from there, and the matrix stays; without a matrix the field is the
                                    whole map. NULL: none */
  const ms_image *rigid;         /* labels on the fixed image's grid, each of which moves as one body; 0 is none. NULL:
                                  all may bend */
  const ms_channel *const *channels; /* beside the first images: an array of channel_count pointers, 16 at most */
  size_t channel_count;
  const double *landmarks; /* points of the fixed image and where they are in the moving one: 6 numbers a pair,
                                    fixed x, y, z, then moving, LPS mm. They steer as exactly as
                                    options.landmark_error says, which must be set. NULL: none */
  const char *const *landmark_names; /* what messages call them, one a pair; NULL, or a NULL name: their numbers */
  size_t landmark_count;             /* pairs */
  const char *const *doubts; /* sentences of whoever read the files, where a header contradicts itself about the place
                                of the voxels: each becomes a warning and a reason of the verdict, which is "check" at
                                most. NULL: none */
  size_t doubt_count;
} ms_pair;

/* Whether a registration can be trusted, as far as its images tell. A newer library may have further grades. */
typedef int32_t ms_grade;

enum {
  MS_UNGRADED = 0, /* an older library saved the result */
  MS_GOOD = 1,     /* nothing that was measured speaks against it */
  MS_CHECK = 2,    /* look before use */
  MS_FAILED = 3    /* do not use */
};

/* What ms_result_verdict tells. */
typedef struct ms_verdict {
  size_t size;
  ms_grade grade;
  size_t reason_count; /* how many ms_result_reason has; 0 where the grade is MS_GOOD */
  double error_mm;     /* estimated mean distance of points from where they belong */
  double njd_percent;  /* share of the voxels where the transform folds (det(I + grad u) < 0), % */
} ms_verdict;

/* A report on a running registration. The strings live until the callback returns. */
typedef struct ms_progress {
  size_t size;
  const char *stage;   /* "align", "look", "search", "network", "refine", "landmarks", "reverse",
                          "uncertainty", "finish" */
  double fraction;     /* of the whole registration, 0 to 1, never decreasing */
  const char *message; /* for a log; may be "" */
} ms_progress;

/*
 * Hears about progress, on the thread that called ms_register, at every change and at least every 100 ms; user is the pointer
 * given there. Non-zero cancels. It may call any function of this library. It must return: no longjmp, no C++ exception.
 */
typedef int (*ms_progress_fn)(const ms_progress *progress, void *user);

/* How an image is sampled. */
typedef int32_t ms_interpolation;

enum {
  MS_LINEAR = 0, /* for intensities */
  MS_NEAREST = 1 /* for labels and masks */
};

#ifndef MS_NO_PROTOTYPES /* the library's own sources need the types alone */

/* ------------------------------------------------------------------------------------------------- The library, its tables */

/* The library's version, "major.minor.patch". Never fails; the text is static. */
const char *ms_version(void);

/*
 * What went wrong in the last call on this thread that failed; "" before there was one. The text is valid until the next call
 * on this thread. Calls that succeed leave it alone. Never fails.
 */
const char *ms_last_error(void);

/* The name of a code, such as "empty_volume"; "code_N" for one that this library does not know. The text is valid until the next
 * call on this thread. Never fails. */
const char *ms_status_name(ms_status status);

/* The exit code of MorphSeek's programs for a status: 0 for MS_OK, 1 for one that the library does not know. Never fails. */
int ms_status_exit(ms_status status);

/* Writes a JSON array of the options, in ms_options' order: [{"name", "label", "type", "default", "choices", "min", "max",
 * "stage", "unset", "help"}, ...]; a "prefix" beside the choices says that what begins with it is taken, too, a "number"
 * that a number of this unit from min to max is, a "stage" which one alone reads the option, "unset" that the default
 * stands for no value. */
ms_status ms_options_json(char *dst, size_t capacity, size_t *needed);

/* Writes a JSON array of the failures: [{"code", "name", "python", "exit", "help"}, ...]. */
ms_status ms_errors_json(char *dst, size_t capacity, size_t *needed);

/* Sets *options to the defaults. size is sizeof(ms_options) as the caller knows it. */
ms_status ms_options_init(ms_options *options, size_t size);

/* ------------------------------------------------------------------------------------------------------------- Engines */

/*
 * Makes an engine. config NULL takes the defaults. ONNX Runtime is loaded when the first network runs, so that an engine without
 * one still aligns; before, ORT_DISABLE_TELEMETRY=1 is put into the process's environment, so that it calls nobody. Destroy it with
 * ms_engine_destroy.
 */
ms_status ms_engine_create(const ms_engine_config *config, ms_engine *out);

/* Destroys an engine. Registrations under way finish first; results outlive their engine. */
ms_status ms_engine_destroy(ms_engine engine);

/* Writes a JSON array of the models that the engine knows: [{"manifest", "path", "code", "error"}, ...], built-in ones with path "". */
ms_status ms_model_list(ms_engine engine, char *dst, size_t capacity, size_t *needed);

/*
 * Checks a model, a name or the path of a .onnx file, and writes {"manifest", "path", "code", "error"}.
 *   MS_ERR_MODEL_NOT_FOUND, MS_ERR_MODEL_CORRUPT, MS_ERR_MODEL_TAMPERED, MS_ERR_MODEL_VERSION, MS_ERR_MODEL_EXTERNAL
 */
ms_status ms_model_verify(ms_engine engine, const char *model, char *dst, size_t capacity, size_t *needed);

/*
 * Tries what there is to run on and writes {"processor": {"architecture", "threads", "features": [{"name", "used"}, ...]}, "library",
 * "version", "providers", "gpus": [{"name", "bytes"}, ...], "devices": [{"name", "usable", "error", "remedy"}, ...]}: the processor's
 * features that the engine can use; for networks the ONNX Runtime in use ("" where none loads), the execution providers that it was
 * built with, the cards that the NVIDIA driver shows, and for every device why it cannot be used and what to do. Takes seconds.
 */
ms_status ms_devices(ms_engine engine, char *dst, size_t capacity, size_t *needed);

/* -------------------------------------------------------------------------------------------------------- Registration */

/*
 * Registers moving onto fixed. options NULL takes the defaults; progress may be NULL. Returns when done. Destroy *out with
 * ms_result_destroy.
 *   MS_ERR_CANCELLED             progress returned non-zero
 *   MS_ERR_OUT_OF_MEMORY
 *   MS_ERR_EMPTY_VOLUME, MS_ERR_NON_FINITE_VOLUME, MS_ERR_CONSTANT_VOLUME, MS_ERR_THIN_VOLUME, MS_ERR_INVALID_SPACING,
 *   MS_ERR_INVALID_DIRECTION     an image that cannot be registered
 *   MS_ERR_NO_OVERLAP            the images do not overlap after the initial transform
 *   MS_ERR_MODEL_*               the model does not load (see ms_model_verify)
 *   MS_ERR_RUNTIME_MISSING, MS_ERR_RUNTIME_FAILED
 *   MS_ERR_DEVICE_UNAVAILABLE    options->device is not there; "auto" falls back to the CPU and says so in the metrics
 */
ms_status ms_register(ms_engine engine, const ms_image *fixed, const ms_image *moving, const ms_options *options,
                      ms_progress_fn progress, void *user, ms_result *out);

/*
 * Registers a pair with any of masks, an initial transform or field, rigid regions, channels, landmarks and doubts;
 * otherwise as ms_register, with its failures, which a channel's images may have, too, and
 *   MS_ERR_EMPTY_MASK          a mask that selects nothing; rigid regions without a label
 *   MS_ERR_GRID_MISMATCH       a mask or rigid regions on another grid than their image; a field that covers less than half of
 *                              the fixed image
 *   MS_ERR_SINGULAR_TRANSFORM  pair->initial cannot be inverted; pair->initial_field has numbers that are not finite
 *   MS_ERR_NO_OVERLAP          a channel lies outside the first image of its side
 *   MS_ERR_INVALID_ARGUMENT    a label map, of rigid regions or of a channel, with values that are no labels; two label maps of a
 *                              channel without a label in common; a weight, or a count of channels, rigid regions or landmarks,
 *                              outside its range; landmarks without options->landmark_error, far outside their image, or whose
 *                              sides are exchanged; rigid regions, landmarks or a field with an option that goes without
 *                              them; an empty doubt; a count without an array
 */
ms_status ms_register_pair(ms_engine engine, const ms_pair *pair, const ms_options *options, ms_progress_fn progress,
                           void *user, ms_result *out);

/* ------------------------------------------------------------------------------------------------------------- Results
 *
 * n is how many numbers dst has room for, and must be exactly what the function writes (V is the number of voxels of the fixed
 * grid): MS_ERR_INVALID_ARGUMENT otherwise.
 *
 * What ms_result_inverse and ms_result_halfway make is a transform alone: it has no warped image, uncertainty, verdict,
 * reasons and metrics, and cannot be saved (MS_ERR_INVALID_ARGUMENT).
 */

/* Writes the fixed grid to *grid, whose voxels become NULL. Set grid->size before. */
ms_status ms_result_geometry(ms_result result, ms_image *grid);

/* Writes the initial transform that was found or given, 12 numbers as in ms_pair. The fields contain it already. */
ms_status ms_result_initial(ms_result result, double matrix[12]);

/*
 * Writes the total displacement field in VOXELS of the fixed grid, n = 3 V: three planes one behind the other, the displacements
 * along z, then y, then x, each plane with x fastest. As a numpy array: shape (3, nz, ny, nx), component i along array axis i.
 */
ms_status ms_result_field(ms_result result, float *dst, size_t n);

/* Writes the total displacement field in LPS MILLIMETRES, n = 3 V: x, y, z interleaved per voxel, an ITK vector image's buffer. */
ms_status ms_result_field_mm(ms_result result, float *dst, size_t n);

/*
 * Makes the inverse transform a result of its own: the moving image's grid is its fixed grid, and ms_result_apply brings
 * images of the fixed space onto it. *residual_mm, which may be NULL, becomes the largest distance by which the inverse misses
 * inside the fixed grid: where the field folds there is no inverse. Destroy *out with ms_result_destroy.
 */
ms_status ms_result_inverse(ms_result result, ms_result *out, double *residual_mm);

/*
 * Makes the maps from the space half-way between the images to the fixed and to the moving space results of their own, both
 * on one grid of as many voxels as the fixed image's: ms_result_apply brings the fixed image there by *to_fixed and the
 * moving one by *to_moving, so that neither is resampled more often than the other. Destroy both with ms_result_destroy.
 *   MS_ERR_SINGULAR_TRANSFORM   the initial transform turns by half a turn, or mirrors: no place is half-way
 */
ms_status ms_result_halfway(ms_result result, ms_result *to_fixed, ms_result *to_moving);

/* Writes the Jacobian determinant of the total transform, n = V; negative where it folds. */
ms_status ms_result_jacobian(ms_result result, float *dst, size_t n);

/* Writes the moving image, resampled once (linearly) by the total transform onto the fixed grid, n = V. */
ms_status ms_result_warped(ms_result result, float *dst, size_t n);

/*
 * Writes the standard deviation of the displacement in mm, n = V: the root of the sum of the variances of its three components
 * (MS_ERR_INVALID_ARGUMENT where options.uncertainty was not "on").
 */
ms_status ms_result_uncertainty(ms_result result, float *dst, size_t n);

/*
 * Resamples any image that lies in the moving image's space by the total transform onto the fixed grid, n = V; where a point falls
 * outside the image, dst gets background.
 *   MS_ERR_EMPTY_VOLUME, MS_ERR_THIN_VOLUME, MS_ERR_INVALID_SPACING, MS_ERR_INVALID_DIRECTION   for image
 */
ms_status ms_result_apply(ms_result result, const ms_image *image, ms_interpolation interpolation, float background,
                          float *dst, size_t n);

/*
 * Maps count points in place, x, y, z interleaved, LPS mm, from the fixed image to the moving image. Outside the fixed grid the
 * displacement fades within a margin of a few voxels, and farther out the initial transform alone remains.
 */
ms_status ms_result_transform_points(ms_result result, double *points, size_t count);

/* Writes whether the result can be trusted. Set verdict->size before. */
ms_status ms_result_verdict(ms_result result, ms_verdict *verdict);

/* Writes one reason of the verdict, in plain words; MS_ERR_INVALID_ARGUMENT unless index < ms_verdict.reason_count. */
ms_status ms_result_reason(ms_result result, size_t index, char *dst, size_t capacity, size_t *needed);

/*
 * Writes a JSON object of the metrics: what report.json holds of them. A later version may add members.
 * metrics: written by go generate from engine/metrics.go
 *   "verdict": whether the result can be trusted
 *     "grade": "good" (nothing that was measured speaks against it), "check" (look before use) or "failed" (do not use); ""
 *              where an older library saved the result
 *     "reasons": plain words; empty where it is good
 *     "error_mm": estimated mean distance of points from where they belong
 *   "referee": what the verdict goes by
 *     "gain": how much closer the deformation brought the images than the initial transform; 0 where there is none
 *     "correlation": mean squared local correlation of the images, 0..1
 *     "start": by what share they differ more when the initial transform is nudged: how sharply they fit
 *     "end": the same of the result; 0 where start is large enough
 *     "reach_mm": how far it was moved
 *     "common": share of what the smaller of both images shows that the other one shows, too
 *     "mirrored": how much closer the images would be with one of them mirrored; 0 where they match too well to ask
 *     "axis": along which it was mirrored: "left and right", "front and back" or "head and foot"
 *   "plan": what was chosen for the pair, and why
 *     "start": the alignment from which the deformable stages start: as align's method, or "header" or "given" where that
 *              was no better, "landmarks" where what fits these is taken, or "deformation" where one was given
 *     "similarity": as the option of this name
 *     "regime": the kind of pair by which the refinement was regularised; "" where it did not run
 *     "search": share of the search's displacement that counts, 0..1; 0 where it did not run
 *     "agreement": squared local correlation at half the resolution after a smooth fit, 0..1: below 0.8 as two people's,
 *                  above 0.9 as one body's; 0 where intensities were not compared
 *     "smoothness_mm": over which distance tissue moves together
 *     "reasons": plain words, for the user
 *     "facts": the numbers that the choices follow from, by name; those that are 0 are left out
 *   "warnings": plain words, for the user; what is among the verdict's reasons need not be shown twice
 *   "similarity": which measure the three values are of
 *   "similarity_before": under the identity in physical space
 *   "similarity_align": after the initial transform
 *   "similarity_after": of the result
 *   "njd_percent": share of the voxels where the transform folds (det(I + grad u) < 0), %
 *   "sdlogj": standard deviation of the Jacobian determinant's logarithm
 *   "jacobian_min": least Jacobian determinant
 *   "jacobian_max": greatest Jacobian determinant
 *   "displacement_mean_mm": mean length of the displacements
 *   "displacement_max_mm": greatest length of the displacements
 *   "align": the initial transform
 *     "method": none: the caller's transform stays, or the identity
 *     "score": overlap-normalised feature similarity, 0..1
 *     "confidence": 0..1: how well the images fit at the best place, times how far the next best is behind
 *     "rival_mm": how far the next best place lies from it, mm, on average over the corners of the fixed image; 0 where
 *                 there is none
 *     "overlap": fraction of the smaller field of view that overlaps
 *     "same_modality": whether the images' intensities correspond
 *     "turn_degrees": by which angle it turns the image further than the headers or the caller's transform do
 *     "matrix": row-major, fixed -> moving, LPS mm
 *     "translation": fixed -> moving, LPS mm
 *   "steps": of the network; empty where none ran
 *     "reward": label-free, of the trajectory kept
 *     "trajectory": which was kept; 0 is the mean
 *     "advantage": of the trajectory kept over its group, in standard deviations; 0 for one trajectory
 *     "log_likelihood": of the trajectory kept under the policy, with LDVN; 0 for one trajectory
 *     "njd_percent": voxels where the network's cumulative field folds, %
 *     "seconds": an equal share each of steps that a GPU took in one run
 *   "refine": how the refinement went
 *     "similarity": as the option of this name
 *     "levels": coarse to fine
 *       "spacing_mm": of the grid
 *       "similarity": before each iteration
 *   "uncertainty": null unless the option asked for it
 *     "source": "policy": trajectories of a network; "search": the costs of displacements about the result
 *     "samples": trajectories; 0 for the search
 *     "mean_mm": mean over the voxels
 *     "p95_mm": 95 % of the voxels have less
 *   "symmetric": null unless the option asked for it
 *     "mean_mm": mean over the voxels
 *     "p95_mm": 95 % of the voxels have less
 *   "channels": beside the first; null where there are none
 *     "name": as it was given, or its number
 *     "weight": beside the 1 of the first
 *     "similarity": of images, as the option of this name; "labels"
 *     "labels": that both maps have; 0 of images
 *     "before": after the initial transform: mean squared local correlation of images, mean Jaccard index of labels
 *     "after": the same of the result
 *   "landmark_fit": how the result keeps to the landmarks that it was given; null without
 *     "count": pairs that were given
 *     "error_mm": how exactly they were said to be marked
 *     "before_mm": apart by the headers, or by the initial transform that was given
 *     "initial_mm": after the initial alignment
 *     "images_mm": after what the images ask for
 *     "after_mm": by the result
 *     "cross_mm": each from where the pull of the others alone puts it; 0 where nothing was pulled
 *     "reach_mm": over which each pulled at the rest; 0 where nothing was pulled: their error explains how far apart the
 *                 images left them, or they do not foretell each other
 *     "left_out": pairs that contradict the rest
 *   "version": of the library
 *   "model": the network's name; "none" where no network ran
 *   "device": that the networks really ran on
 *   "seed": of the random draws
 *   "threads": that were used
 *   "seconds": "total" and by stage
 *   "peak_bytes": by how much the process's memory grew at most
 *   "cached": taken from the folder of the option cache
 * end of metrics
 */
ms_status ms_result_metrics(ms_result result, char *dst, size_t capacity, size_t *needed);

/*
 * Saves a result to a file, which appears complete or not at all.
 *   MS_ERR_OUTPUT_UNWRITABLE, MS_ERR_DISK_FULL
 */
ms_status ms_result_save(ms_result result, const char *path);

/*
 * Loads what ms_result_save saved. Destroy *out with ms_result_destroy.
 *   MS_ERR_INPUT_UNREADABLE   no such file, or it cannot be read
 *   MS_ERR_SNAPSHOT_CORRUPT   the file is truncated, was tampered with, or is of another kind or version
 */
ms_status ms_result_load(const char *path, ms_result *out);

/* Destroys a result. */
ms_status ms_result_destroy(ms_result result);

#endif /* MS_NO_PROTOTYPES */

#ifdef __cplusplus
}
#endif

#endif /* MORPHSEEK_H */
