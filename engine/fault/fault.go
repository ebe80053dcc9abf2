// Package fault is the one list of what can go wrong in a registration. Every error that leaves the engine carries one of
// its codes; the C status codes, the Python exception classes and the command line's exit codes are all derived from the
// table here, so that a new failure is added in one place.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Code identifies a kind of failure. Values are part of the C ABI: they are never renumbered or reused.
type Code int32

// The codes. Their order and numbers are the C ABI's ms_status values.
const (
	OK                Code = 0
	Internal          Code = 1 // a defect of ours, a recovered panic included
	InvalidArgument   Code = 2 // an option or argument outside its range
	InvalidHandle     Code = 3 // a closed or foreign handle
	Cancelled         Code = 4 // the caller asked to stop
	OutOfMemory       Code = 5
	EmptyVolume       Code = 10 // no voxels, or fewer voxels than the size says
	NonFiniteVolume   Code = 11 // nothing but NaN or Inf
	ConstantVolume    Code = 12 // every voxel has the same value
	ThinVolume        Code = 13 // an axis is one voxel thick
	InvalidSpacing    Code = 14 // zero, negative or non-finite spacing or origin
	InvalidDirection  Code = 15 // singular direction matrix
	EmptyMask         Code = 16 // a mask that selects nothing
	GridMismatch      Code = 17 // a mask, label map or field on another grid than its image
	NoOverlap         Code = 18 // the volumes do not overlap after the initial transform
	SingularTransform Code = 19 // an initial transform that cannot be inverted
	ModelNotFound     Code = 30
	ModelCorrupt      Code = 31 // truncated, or not a bundle
	ModelTampered     Code = 32 // sha256 differs from the manifest's
	ModelVersion      Code = 33 // a format this library does not know
	ModelExternal     Code = 34 // a bundle that points at files outside itself
	RuntimeMissing    Code = 35 // ONNX Runtime was not found or does not load
	RuntimeFailed     Code = 36 // ONNX Runtime reported an error
	DeviceUnavailable Code = 37 // the execution provider asked for is not there
	InputUnreadable   Code = 50 // an input file that is missing or cannot be parsed
	OutputUnwritable  Code = 51
	DiskFull          Code = 52
	SnapshotCorrupt   Code = 53 // truncated, tampered or foreign snapshot
)

// Info is what every skin needs to know about a code.
type Info struct {
	Code   Code   `json:"code"`
	Name   string `json:"name"`   // snake_case: the C enumerator is MS_ERR_<NAME>
	Python string `json:"python"` // the exception class
	Exit   int    `json:"exit"`   // the command line's exit code, by class of error
}

// Exit codes of the command line, by class of error.
const (
	exitInternal  = 1
	exitUsage     = 2
	exitInput     = 3
	exitModel     = 4
	exitRuntime   = 5
	exitOutput    = 6
	exitCancelled = 130
)

// Table lists every failure, in the order of the codes.
var Table = []Info{
	{Internal, "internal", "InternalError", exitInternal},
	{InvalidArgument, "invalid_argument", "InvalidArgumentError", exitUsage},
	{InvalidHandle, "invalid_handle", "InvalidHandleError", exitInternal},
	{Cancelled, "cancelled", "CancelledError", exitCancelled},
	{OutOfMemory, "out_of_memory", "OutOfMemoryError", exitRuntime},
	{EmptyVolume, "empty_volume", "EmptyVolumeError", exitInput},
	{NonFiniteVolume, "non_finite_volume", "NonFiniteVolumeError", exitInput},
	{ConstantVolume, "constant_volume", "ConstantVolumeError", exitInput},
	{ThinVolume, "thin_volume", "ThinVolumeError", exitInput},
	{InvalidSpacing, "invalid_spacing", "InvalidSpacingError", exitInput},
	{InvalidDirection, "invalid_direction", "InvalidDirectionError", exitInput},
	{EmptyMask, "empty_mask", "EmptyMaskError", exitInput},
	{GridMismatch, "grid_mismatch", "GridMismatchError", exitInput},
	{NoOverlap, "no_overlap", "NoOverlapError", exitInput},
	{SingularTransform, "singular_transform", "SingularTransformError", exitInput},
	{ModelNotFound, "model_not_found", "ModelNotFoundError", exitModel},
	{ModelCorrupt, "model_corrupt", "ModelCorruptError", exitModel},
	{ModelTampered, "model_tampered", "ModelTamperedError", exitModel},
	{ModelVersion, "model_version", "ModelVersionError", exitModel},
	{ModelExternal, "model_external", "ModelExternalError", exitModel},
	{RuntimeMissing, "runtime_missing", "RuntimeMissingError", exitRuntime},
	{RuntimeFailed, "runtime_failed", "RuntimeFailedError", exitRuntime},
	{DeviceUnavailable, "device_unavailable", "DeviceUnavailableError", exitRuntime},
	{InputUnreadable, "input_unreadable", "InputUnreadableError", exitInput},
	{OutputUnwritable, "output_unwritable", "OutputUnwritableError", exitOutput},
	{DiskFull, "disk_full", "DiskFullError", exitOutput},
	{SnapshotCorrupt, "snapshot_corrupt", "SnapshotCorruptError", exitOutput},
}

// Error is a failure with its code. The message names the input and what to do about it.
type Error struct {
	Code    Code
	Message string
	Cause   error // may be nil
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is lets errors.Is find a code: errors.Is(err, fault.NoOverlap).
func (e *Error) Is(target error) bool { return target == e.Code }

// New makes an error with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an error with a cause, whose text follows the message.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Defect makes the error of what a panic left, with the stack of the goroutine that recovers it.
func Defect(recovered any) *Error {
	return New(Internal, "defect in morphseek, please report it: %v\n%s", recovered, debug.Stack())
}

// CodeOf returns the code that err carries: OK for nil, Internal for an error of unknown origin.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var code Code
	if errors.As(err, &code) {
		return code
	}
	return Internal
}

// Error makes a code an error, for errors.Is.
func (c Code) Error() string { return c.String() }

// String returns the snake_case name.
func (c Code) String() string {
	if c == OK {
		return "ok"
	}
	for _, info := range Table {
		if info.Code == c {
			return info.Name
		}
	}
	return fmt.Sprintf("code_%d", int32(c))
}
