package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

func tinyModel(t testing.TB) *Model { return model(t, "tiny.onnx") }

func model(t testing.TB, name string) *Model {
	t.Helper()
	m := testkit.Must(Parse(read(t, name), name))(t)
	return m
}

// onCPU returns what runs a model, on sessions of its own.
func onCPU(t testing.TB, m *Model, threads int) Runner {
	t.Helper()
	sessions := NewSessions(testkit.ONNXRuntime(t))
	t.Cleanup(sessions.Close)
	runner, _, err := sessions.Get(m, "cpu", threads)
	testkit.OK(t, err)
	return runner
}

// golden.bin's layout, see testdata/make_bundle.py.
const goldenJ, goldenSteps = 3, 3

var goldenSize = [3]int{12, 8, 16}

func goldenValues(t testing.TB) []float32 {
	bytes := read(t, "golden.bin")
	values := make([]float32, len(bytes)/4)
	testkit.Must(binary.Decode(bytes, binary.LittleEndian, values))(t)
	return values
}

// chain runs the golden steps, comparing every output.
func chain(t *testing.T, runner Runner, m *Model) {
	values := goldenValues(t)
	next := func(n int) []float32 {
		head := values[:n]
		values = values[n:]
		return head
	}
	voxels := goldenSize[0] * goldenSize[1] * goldenSize[2]
	s := NewStep(m.Manifest, goldenSize, 1, goldenJ)
	s.Fixed, s.Moving, s.Previous, s.Tau = next(voxels), next(voxels), make([]float32, 3*voxels), 0.5
	for range goldenSteps {
		copy(s.Epsilon, next(len(s.Epsilon)))
		if err := runner.Run(context.Background(), s); err != nil {
			t.Error(err)
			return
		}
		for _, out := range [][]float32{s.U, s.Reward, s.Mu, s.LogSigma} {
			for i, want := range next(len(out)) {
				if !(math.Abs(float64(out[i]-want)) <= 1e-5) {
					t.Errorf("value %d of %d is %g, onnxruntime in Python gives %g", i, len(out), out[i], want)
					return
				}
			}
		}
		best := slices.Index(s.Reward, slices.Max(s.Reward))
		copy(s.Previous, s.U[best*3*voxels:(best+1)*3*voxels])
	}
	if len(values) != 0 {
		t.Errorf("%d golden values left", len(values))
	}
}

func TestChainedStepsAgreeWithPython(t *testing.T) {
	m := tinyModel(t)
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) { chain(t, onCPU(t, m, threads), m) })
	}
}

// A model that loops takes one step where it is asked for one, and three in one run with the same result.
func TestLoopAgreesWithChain(t *testing.T) {
	if tinyModel(t).Loops {
		t.Error("a single step is taken for a loop")
	}
	for _, file := range []string{"loop.onnx", "offset.onnx"} {
		t.Run(file, func(t *testing.T) {
			m := model(t, file)
			runner := onCPU(t, m, 1)
			if !m.Loops || m.counts != (file == "offset.onnx") {
				t.Fatalf("loops %v, counts %v", m.Loops, m.counts)
			}
			if !m.counts {
				chain(t, runner, m)
			}
			loopAgreesWithChain(t, runner, m)
		})
	}
}

func loopAgreesWithChain(t *testing.T, runner Runner, m *Model) {
	single, looped := NewStep(m.Manifest, goldenSize, 1, goldenJ), NewStep(m.Manifest, goldenSize, goldenSteps, goldenJ)
	values, voxels := goldenValues(t), goldenSize[0]*goldenSize[1]*goldenSize[2]
	for _, s := range []*Step{single, looped} {
		s.Fixed, s.Moving, s.Previous, s.Tau = values[:voxels], values[voxels:2*voxels], make([]float32, 3*voxels), 30
	}
	for i := range looped.Epsilon { // wild enough for folds
		looped.Epsilon[i] = float32(math.Sin(float64(i * i)))
	}
	testkit.OK(t, runner.Run(context.Background(), looped))
	folds := 0.0
	for k := range goldenSteps {
		copy(single.Epsilon, looped.Epsilon[k*len(single.Epsilon):])
		single.First = k
		testkit.OK(t, runner.Run(context.Background(), single))
		for _, c := range []struct {
			name      string
			one, many []float32
		}{
			{"reward", single.Reward, looped.Reward},
			{"njd", single.NJD, looped.NJD},
			{"mu", single.Mu, looped.Mu},
			{"log sigma", single.LogSigma, looped.LogSigma},
		} {
			n := len(c.one)
			if !slices.Equal(c.one, c.many[k*n:(k+1)*n]) {
				t.Errorf("step %d: %s is %v in the loop, %v alone", k, c.name, c.many[k*n : (k+1)*n][:1], c.one[:1])
			}
		}
		for j, njd := range single.NJD {
			g := testkit.Grid([3]int{goldenSize[2], goldenSize[1], goldenSize[0]})
			if want := field.Over(g, single.U[j*3*voxels:(j+1)*3*voxels]).Stats(1).NJDPercent; math.Abs(float64(njd)-want) > 1e-4 {
				t.Errorf("step %d, trajectory %d: %g %% fold, package field says %g %%", k, j, njd, want)
			}
			folds += float64(njd)
		}
		best := slices.Index(single.Reward, slices.Max(single.Reward))
		copy(single.Previous, single.U[best*3*voxels:(best+1)*3*voxels])
	}
	if folds == 0 || !slices.Equal(single.U, looped.U) {
		t.Errorf("%g %% fold; the fields are equal: %v", folds, slices.Equal(single.U, looped.U))
	}
	testkit.Fails(t, runner.Run(context.Background(), &Step{T: 2}), fault.Internal)
}

func TestSessionsShared(t *testing.T) {
	sessions := NewSessions(testkit.ONNXRuntime(t))
	defer sessions.Close()
	m := tinyModel(t)
	var wg sync.WaitGroup
	runners := make([]Runner, 8)
	for i := range runners {
		wg.Go(func() {
			var err error
			if runners[i], _, err = sessions.Get(m, "cpu", 2); err != nil {
				t.Error(err)
				return
			}
			chain(t, runners[i], m)
		})
	}
	wg.Wait()
	for _, r := range runners {
		if r != runners[0] {
			t.Error("one model, device and thread count opened twice")
		}
	}
}

func TestRunCancelled(t *testing.T) {
	m := model(t, "loop.onnx")
	runner := onCPU(t, m, 1)
	size := [3]int{128, 128, 128} // seconds of work
	voxels := size[0] * size[1] * size[2]
	s := NewStep(m.Manifest, size, 1, 8)
	s.Fixed, s.Moving, s.Previous = make([]float32, voxels), make([]float32, voxels), make([]float32, 3*voxels)
	for name, begin := range map[string]func(cancel func()){
		"before":              func(cancel func()) { cancel() },
		"at the beginning of": func(cancel func()) { go cancel() },
		"during":              func(cancel func()) { time.AfterFunc(100*time.Millisecond, cancel) },
		"later during":        func(cancel func()) { time.AfterFunc(300*time.Millisecond, cancel) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			begin(cancel)
			testkit.Fails(t, runner.Run(ctx, s), fault.Cancelled)
			cancel()
		})
	}
	chain(t, runner, m) // the session has survived
}

// A run that is cancelled is no error to ONNX Runtime's log, which goes to standard error: another process's, to be
// read.
func TestCancellingPrintsNothing(t *testing.T) {
	library := testkit.ONNXRuntime(t)
	again := exec.Command(os.Args[0], "-test.run=^TestRunCancelled$", "-test.count=1")
	again.Env = append(os.Environ(), LibraryVariable+"="+library)
	var printed bytes.Buffer
	again.Stderr = &printed
	if err := again.Run(); err != nil || printed.Len() > 0 {
		t.Errorf("%v; on standard error: %s", err, printed.String())
	}
}

// ONNX Runtime's telemetry leaves a device id in HOME as soon as it loads, unless it was switched off before: seen in
// another process, whose environment does not silence it by saying CI.
func TestLoadingLeavesNothing(t *testing.T) {
	library, home := testkit.ONNXRuntime(t), t.TempDir()
	again := exec.Command(os.Args[0], "-test.run=^TestRunCancelled$", "-test.count=1")
	again.Env = []string{LibraryVariable + "=" + library, "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := filepath.WalkDir(home, func(path string, entry os.DirEntry, err error) error {
		if err == nil && path != home {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRunWrongLength(t *testing.T) {
	m := tinyModel(t)
	runner := onCPU(t, m, 1)
	s := NewStep(m.Manifest, goldenSize, 1, 1)
	testkit.Fails(t, runner.Run(context.Background(), s), fault.Internal)
	s.Fixed, s.Moving, s.Previous = make([]float32, 12*8*16), make([]float32, 12*8*16), make([]float32, 3*12*8*16)
	s.Latent[0]++ // a latent grid that the graph does not have
	s.Epsilon, s.Mu, s.LogSigma = make([]float32, 72), make([]float32, 72), make([]float32, 72)
	testkit.Fails(t, runner.Run(context.Background(), s), fault.RuntimeFailed, "tiny")
}

func TestDevices(t *testing.T) {
	sessions := NewSessions(testkit.ONNXRuntime(t))
	defer sessions.Close()
	m := tinyModel(t)
	auto, _, err := sessions.Get(m, "auto", 1)
	testkit.OK(t, err)
	chain(t, auto, m)
	cuda, _, err := sessions.Get(m, "cuda", 1)
	switch {
	case err == nil && cuda.Device() == "cuda" && auto.Device() == "cuda":
		chain(t, cuda, m)
	case fault.CodeOf(err) != fault.DeviceUnavailable || auto.Device() != "cpu":
		t.Errorf("cuda: %v; auto runs on %s", err, auto.Device())
	}
}

func TestLibraryCandidates(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	t.Setenv("CONDA_PREFIX", "")
	name := strings.ReplaceAll(libraryPatterns()[0], "*", ".31.1")
	file := func(elements ...string) string {
		path := filepath.Join(append(elements, name)...)
		testkit.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.OK(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	venv := t.TempDir()
	t.Setenv("VIRTUAL_ENV", venv)
	wheel := file(venv, "lib", "python3.12", "site-packages", "onnxruntime", "capi")
	own := file(t.TempDir())

	if got, err := libraryCandidates(""); err != nil || !slices.Contains(got, wheel) || got[len(got)-1] != strings.TrimSuffix(libraryPatterns()[0], "*") {
		t.Errorf("looked for: %v, %v", got, err)
	}
	if got, err := libraryCandidates(own); err != nil || !slices.Equal(got, []string{own}) {
		t.Errorf("explicit: %v, %v", got, err)
	}
	t.Setenv(LibraryVariable, wheel)
	if got, err := libraryCandidates(""); err != nil || !slices.Equal(got, []string{wheel}) {
		t.Errorf("variable: %v, %v", got, err)
	}
	if got, err := libraryCandidates(own); err != nil || !slices.Equal(got, []string{own}) {
		t.Errorf("explicit before variable: %v, %v", got, err)
	}
}
