// Package snapshot keeps a finished registration in one file. A file is
//
//	magic "MORPHSNP" | uint32 version | uint32 header length | header | uint32 CRC-32C of all before
//	field, 3 planes of float32 (field.Field.Data) | uint32 CRC-32C of them
//	warped image, float32 | uint32 CRC-32C of them
//	uncertainty, float32 | uint32 CRC-32C of them, where the header says that there is one
//
// all little-endian, the header in kelindar/binary. Nothing in a file is trusted: a length is checked against the
// file's size before anything is allocated, and a file that is cut short, changed or not ours is refused with
// SnapshotCorrupt.
package snapshot

import (
	"bufio"
	stdbinary "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kelindar/binary"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

const (
	magic     = "MORPHSNP"
	version   = 3
	oldest    = 1 // without uncertainty and key; version 2 is without key; both are read, not written
	preamble  = len(magic) + 4 + 4
	maxHeader = 1 << 20
	crcSize   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is a finished registration as it is kept.
type Snapshot struct {
	Field   *field.Field   // the total transform on the fixed grid
	Warped  *volume.Volume // on the fixed grid
	Initial volume.Affine
	Moving  volume.Geometry
	Metrics []byte // JSON

	Uncertainty *volume.Volume // on the fixed grid; may be nil
	Key         string         // what a cache asks for it by; may be empty
}

// planes returns the arrays that follow the header.
func (s *Snapshot) planes() [][]float32 {
	planes := [][]float32{s.Field.Data, s.Warped.Data}
	if s.Uncertainty != nil {
		planes = append(planes, s.Uncertainty.Data)
	}
	return planes
}

// header is what precedes the voxels. Its layout is the version's: a change of any field is a new version.
type header struct {
	Fixed, Moving volume.Geometry
	Initial       volume.Affine
	Metrics       string
	Uncertainty   bool   // since version 2
	Key           string // since version 3
}

// Temporary begins the name of the file that Save writes first. One that stays is of a process that was killed.
const Temporary = ".snapshot-"

// Save writes s to path: to a temporary file beside it first, which then takes its place, so that path never holds half
// a snapshot. Errors: OutputUnwritable, DiskFull.
func Save(path string, s *Snapshot) (err error) {
	if isSpecial(path) { // whose place the new file would take
		return fault.New(fault.OutputUnwritable, "snapshot %s is a pipe, a socket or a device; give the path of a file", path)
	}
	mode := fs.FileMode(0o666) // less the umask; os.CreateTemp would use 0o600
	if s.Key != "" {
		mode = 0o600 // in a cache: nobody asked for a copy of a patient's image there
	}
	temporary := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%016x", Temporary, rand.Uint64()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return writeError(err, path)
	}
	defer func() {
		f.Close()
		os.Remove(f.Name()) // already renamed, unless something failed
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(w, s), w.Flush(), f.Sync(), f.Close()); err != nil {
		return writeError(err, path)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return writeError(err, path)
	}
	return nil
}

func writeError(err error, path string) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fault.Wrap(fault.DiskFull, err, "the disk is full: snapshot %s was not written; free some space", path)
	}
	return fault.Wrap(fault.OutputUnwritable, err,
		"snapshot %s cannot be written; check the folder and its permissions", path)
}

func write(w io.Writer, s *Snapshot) error {
	body, err := binary.Marshal(&header{s.Field.Geometry, s.Moving, s.Initial, string(s.Metrics), s.Uncertainty != nil, s.Key})
	if err != nil {
		return err
	}
	head := stdbinary.LittleEndian.AppendUint32([]byte(magic), version)
	head = stdbinary.LittleEndian.AppendUint32(head, uint32(len(body)))
	head = append(head, body...)
	head = stdbinary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, values := range s.planes() {
		if err := writeFloats(w, values); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how many floats are converted at a time.
const chunk = 1 << 14

func writeFloats(w io.Writer, values []float32) error {
	crc := crc32.New(castagnoli)
	for part := range slices.Chunk(values, chunk) {
		if err := stdbinary.Write(io.MultiWriter(w, crc), stdbinary.LittleEndian, part); err != nil {
			return err
		}
	}
	return stdbinary.Write(w, stdbinary.LittleEndian, crc.Sum32())
}

// isSpecial says whether a pipe, a socket or a device lies at path.
func isSpecial(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// Load reads a snapshot. Errors: InputUnreadable where there is no file to read, SnapshotCorrupt.
func Load(path string) (*Snapshot, error) {
	if isSpecial(path) { // opening a pipe waits for who writes to it
		return nil, fault.New(fault.InputUnreadable,
			"snapshot %s is a pipe, a socket or a device, and no regular file; save what it gives to a file first", path)
	}
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(fault.InputUnreadable, "there is no snapshot %s", path)
		}
		return nil, fault.Wrap(fault.InputUnreadable, err, "snapshot %s cannot be opened", path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fault.Wrap(fault.InputUnreadable, err, "snapshot %s cannot be read", path)
	}
	if info.IsDir() {
		return nil, fault.New(fault.InputUnreadable, "%s is a folder; give the file of a snapshot", path)
	}
	s, err := Read(bufio.NewReaderSize(f, 1<<16), info.Size())
	if err != nil {
		return nil, fault.Wrap(fault.SnapshotCorrupt, err,
			"%s is not a sound snapshot of this library; delete it and register again", path)
	}
	return s, nil
}

// Read reads a snapshot of size bytes from r.
func Read(r io.Reader, size int64) (*Snapshot, error) {
	head := make([]byte, preamble)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, errors.New("it lacks the mark that a saved result begins with")
	}
	v := stdbinary.LittleEndian.Uint32(head[len(magic):])
	if v < oldest || v > version {
		return nil, fmt.Errorf("it has version %d, this library reads %d to %d", v, oldest, version)
	}
	length := int64(stdbinary.LittleEndian.Uint32(head[len(magic)+4:]))
	if length > maxHeader || length > size {
		return nil, fmt.Errorf("its header claims %d bytes", length)
	}
	head = append(head, make([]byte, length+crcSize)...)
	if _, err := io.ReadFull(r, head[preamble:]); err != nil {
		return nil, err
	}
	head, crc := head[:len(head)-crcSize], head[len(head)-crcSize:]
	if crc32.Checksum(head, castagnoli) != stdbinary.LittleEndian.Uint32(crc) {
		return nil, errors.New("its header is damaged")
	}
	body := slices.Clip(head[preamble:])
	if v == 1 {
		body = append(body, 0) // no uncertainty
	}
	if v < 3 {
		body = append(body, 0) // no key: an empty text
	}
	h, err := decode(body)
	if err != nil {
		return nil, err
	}
	if err := h.Fixed.Check("fixed"); err != nil {
		return nil, err
	}
	if err := h.Moving.Check("moving"); err != nil {
		return nil, err
	}
	voxels := int64(h.Fixed.Voxels())
	want := int64(preamble) + length + crcSize + 4*voxels*4 + 2*crcSize
	if h.Uncertainty {
		want += voxels*4 + crcSize
	}
	if want != size {
		return nil, fmt.Errorf("it has %d bytes instead of %d", size, want)
	}
	s := &Snapshot{
		Field: field.New(h.Fixed), Warped: volume.Zeros(h.Fixed),
		Initial: h.Initial, Moving: h.Moving, Metrics: []byte(h.Metrics), Key: h.Key,
	}
	if h.Uncertainty {
		s.Uncertainty = volume.Zeros(h.Fixed)
	}
	for _, values := range s.planes() {
		if err := readFloats(r, values); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decode reads the header. The codec panics on some damaged input.
func decode(body []byte) (h header, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its header cannot be decoded: %v", r)
		}
	}()
	return h, binary.Unmarshal(body, &h)
}

func readFloats(r io.Reader, values []float32) error {
	crc := crc32.New(castagnoli)
	for part := range slices.Chunk(values, chunk) {
		if err := stdbinary.Read(io.TeeReader(r, crc), stdbinary.LittleEndian, part); err != nil {
			return err
		}
	}
	var want uint32
	if err := stdbinary.Read(r, stdbinary.LittleEndian, &want); err != nil {
		return err
	}
	if crc.Sum32() != want {
		return errors.New("its voxels are damaged")
	}
	return nil
}
