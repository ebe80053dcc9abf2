// Package fault is the one list of what can go wrong in a registration. Every error that leaves the engine carries one of
// its codes; the C status codes, the Python exception classes and the command line's exit codes are all derived from the
// table here, so that a new failure is added in one place.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
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
	ThinVolume        Code = 13 // too few voxels along an axis, or a slice and a volume
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

// Info is what every front end needs to know about a code.
type Info struct {
	Code   Code   `json:"code"`
	Name   string `json:"name"`   // snake_case: the C enumerator is MS_ERR_<NAME>
	Python string `json:"python"` // the exception class
	Exit   int    `json:"exit"`   // the command line's exit code, by class of error
	Help   string `json:"help"`   // what happened, in a few words
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
	{Internal, "internal", "InternalError", exitInternal, "a defect of this library"},
	{InvalidArgument, "invalid_argument", "InvalidArgumentError", exitUsage, "an option or argument outside its range"},
	{InvalidHandle, "invalid_handle", "InvalidHandleError", exitInternal, "a closed or foreign handle"},
	{Cancelled, "cancelled", "CancelledError", exitCancelled, "the caller asked to stop"},
	{OutOfMemory, "out_of_memory", "OutOfMemoryError", exitRuntime, "too little memory for these images"},
	{EmptyVolume, "empty_volume", "EmptyVolumeError", exitInput, "no voxels"},
	{NonFiniteVolume, "non_finite_volume", "NonFiniteVolumeError", exitInput, "nothing but NaN or Inf"},
	{ConstantVolume, "constant_volume", "ConstantVolumeError", exitInput, "every voxel has the same value"},
	{ThinVolume, "thin_volume", "ThinVolumeError", exitInput, "too few voxels along an axis, or a slice and a volume"},
	{InvalidSpacing, "invalid_spacing", "InvalidSpacingError", exitInput, "zero, negative or non-finite spacing, or a non-finite origin"},
	{InvalidDirection, "invalid_direction", "InvalidDirectionError", exitInput, "a singular direction matrix"},
	{EmptyMask, "empty_mask", "EmptyMaskError", exitInput, "a mask that selects nothing"},
	{GridMismatch, "grid_mismatch", "GridMismatchError", exitInput, "a mask, label map or field on another grid than its image"},
	{NoOverlap, "no_overlap", "NoOverlapError", exitInput, "the volumes do not overlap after the initial transform"},
	{SingularTransform, "singular_transform", "SingularTransformError", exitInput, "an initial transform that cannot be inverted"},
	{ModelNotFound, "model_not_found", "ModelNotFoundError", exitModel, "no model of that name or path"},
	{ModelCorrupt, "model_corrupt", "ModelCorruptError", exitModel, "a truncated model, or no MorphSeek model at all"},
	{ModelTampered, "model_tampered", "ModelTamperedError", exitModel, "weights whose sha256 differs from the manifest's"},
	{ModelVersion, "model_version", "ModelVersionError", exitModel, "a model format that this library does not know"},
	{ModelExternal, "model_external", "ModelExternalError", exitModel, "a model that points at files outside itself"},
	{RuntimeMissing, "runtime_missing", "RuntimeMissingError", exitRuntime, "ONNX Runtime was not found or does not load"},
	{RuntimeFailed, "runtime_failed", "RuntimeFailedError", exitRuntime, "ONNX Runtime reported an error"},
	{DeviceUnavailable, "device_unavailable", "DeviceUnavailableError", exitRuntime, "the device asked for is not there"},
	{InputUnreadable, "input_unreadable", "InputUnreadableError", exitInput, "an input file that is missing or cannot be read"},
	{OutputUnwritable, "output_unwritable", "OutputUnwritableError", exitOutput, "a file or folder that cannot be written"},
	{DiskFull, "disk_full", "DiskFullError", exitOutput, "no space left where a file is written"},
	{SnapshotCorrupt, "snapshot_corrupt", "SnapshotCorruptError", exitOutput, "a truncated, tampered or foreign result file"},
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

// Recovered turns a panic into an Internal error. Use: defer fault.Recovered(&err).
func Recovered(err *error) {
	if r := recover(); r != nil {
		*err = Defect(r)
	}
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
	if info := c.info(); info != nil {
		return info.Name
	}
	return fmt.Sprintf("code_%d", int32(c))
}

// Exit returns the exit code of a program that ends with c: that of Internal for a code that the table does not have.
func (c Code) Exit() int {
	if c == OK {
		return 0
	}
	if info := c.info(); info != nil {
		return info.Exit
	}
	return exitInternal
}

// info returns the row of the table: nil for OK, and for a code without one.
func (c Code) info() *Info {
	if i := slices.IndexFunc(Table, func(info Info) bool { return info.Code == c }); i >= 0 {
		return &Table[i]
	}
	return nil
}
