package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// A network is compared with the images before it runs; the one for a hippocampus is made for 48 x 64 x 48 mm.
func TestImagesThatAModelIsNotMadeFor(t *testing.T) {
	m := testkit.Must(network.Load("hippocampus", ""))(t)
	image := func(size [3]int, spacing, least float64) *volume.Volume {
		return testkit.Filled(volume.Geometry{Size: size, Spacing: [3]float64{spacing, spacing, spacing}, Direction: volume.Identity}, func(i int) float32 { return float32(least) + float32(i%97) })
	}
	thick := image([3]int{40, 60, 10}, 1, 0)
	thick.Spacing[2] = 4
	for _, c := range []struct {
		name     string
		v        *volume.Volume
		want     fault.Code
		warnings []string
	}{
		{"a hippocampus", image([3]int{40, 60, 40}, 1, 0), fault.OK, nil},
		{"with a margin", image([3]int{70, 80, 70}, 1.5, 0), fault.OK, nil},
		{"a head", image([3]int{45, 45, 45}, 4, 0), fault.OK, []string{"made for images of about 48 x 64 x 48 mm", "made for finer voxels"}},
		{"a mouse's", image([3]int{60, 80, 60}, .1, 0), fault.OK, []string{"the fixed volume is of 6 x 8 x 6 mm"}},
		{"a torso", image([3]int{48, 48, 48}, 8, 0), fault.InvalidArgument, nil},
		{"long from front to back", image([3]int{40, 160, 40}, 1, 0), fault.OK, nil},
		{"of thick slices", thick, fault.OK, []string{"1 x 1 x 4 mm"}},
		{"of CT", image([3]int{40, 60, 40}, 1, -1000), fault.OK, []string{"made for MR"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNotes(Options{})
			err := checkModel(n, m.Manifest, c.v, c.v)
			testkit.Fails(t, err, c.want, "crop the volumes")
			if got := n.metrics.Warnings; len(got) != 2*len(c.warnings) {
				t.Errorf("warnings %q", got)
				return
			}
			turned := testkit.Reordered(c.v, [3]int{1, 2, 0}, [3]bool{true})
			other := newNotes(Options{})
			if again := checkModel(other, m.Manifest, turned, turned); !slices.Equal(other.metrics.Warnings, n.metrics.Warnings) || fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("with its axes in another order %v, %q, and as stored %v, %q", again, other.metrics.Warnings, err, n.metrics.Warnings)
			}
			for i, words := range c.warnings {
				if !strings.Contains(n.metrics.Warnings[i], words) {
					t.Errorf("warning %q lacks %q", n.metrics.Warnings[i], words)
				}
			}
		})
	}
}

// A network of one modality warns where the alignment found two contrasts; one for any, or for two, has nothing to say.
func TestAModelOfOneContrastWarnsOfTwo(t *testing.T) {
	same, other := plan.Facts{SameModality: true, Score: 0.8}, plan.Facts{Score: 0.6}
	for _, c := range []struct {
		modality string
		facts    plan.Facts
		warns    bool
	}{
		{"mr", same, false}, {"mr", other, true}, {"ct", other, true}, {"any", other, false}, {"mr-ct", other, false},
	} {
		t.Run(fmt.Sprintf("%s, one contrast %v", c.modality, c.facts.SameModality), func(t *testing.T) {
			n := newNotes(Options{})
			checkContrasts(n, network.Manifest{Name: "n", Modality: c.modality}, c.facts)
			if got := n.metrics.Warnings; len(got) > 0 != c.warns || c.warns && !strings.Contains(got[0], "one contrast ("+c.modality+")") {
				t.Errorf("%s, one modality %v: warnings %q", c.modality, c.facts.SameModality, got)
			}
		})
	}
}

func TestModels(t *testing.T) {
	e := open(t, Config{ModelDir: "internal/network/testdata"})
	faulty, sound := 0, 0
	models := testkit.Must(e.ListModels())(t)
	for _, m := range models {
		if (m.Error == "") != (m.Code == fault.OK) {
			t.Errorf("%+v", m)
		}
		if m.Path == "" && m.Code != fault.OK {
			t.Errorf("built-in %s: %s", m.Manifest.Name, m.Error)
		}
		if m.Code != fault.OK {
			faulty++
		} else if m.Manifest.Name == "tiny" {
			sound++
		}
	}
	if faulty != 1 || sound != 3 { // tiny.onnx; loop.onnx and offset.onnx, which take several steps in a run
		t.Errorf("%d faulty and %d tiny models listed", faulty, sound)
	}
	if m, err := e.VerifyModel("tiny"); err != nil || m.Manifest.Name != "tiny" || m.Path == "" {
		t.Errorf("VerifyModel: %+v, %v", m, err)
	}
	testkit.Refused(e.VerifyModel("external"))(t, fault.ModelExternal)
}
