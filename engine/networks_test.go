package engine

import (
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/volume"
)

// A network is compared with the images before it runs; the one for a hippocampus is made for 48 x 64 x 48 mm.
func TestImagesThatAModelIsNotMadeFor(t *testing.T) {
	m, err := network.Load("hippocampus", "")
	if err != nil {
		t.Fatal(err)
	}
	image := func(size [3]int, spacing, least float64) *volume.Volume {
		v := volume.Zeros(volume.Geometry{Size: size, Spacing: [3]float64{spacing, spacing, spacing}, Direction: volume.Identity})
		for i := range v.Data {
			v.Data[i] = float32(least) + float32(i%97)
		}
		return v
	}
	for _, c := range []struct {
		name     string
		v        *volume.Volume
		want     fault.Code
		warnings []string
	}{
		{"a hippocampus", image([3]int{40, 60, 40}, 1, 0), fault.OK, nil},
		{"with a margin", image([3]int{70, 80, 70}, 1.5, 0), fault.OK, nil},
		{"a head", image([3]int{45, 45, 45}, 4, 0), fault.OK, []string{"made for images of about 48 x 64 x 48 mm", "made for finer voxels"}},
		{"a torso", image([3]int{48, 48, 48}, 8, 0), fault.InvalidArgument, nil},
		{"of CT", image([3]int{40, 60, 40}, 1, -1000), fault.OK, []string{"made for MR"}},
	} {
		r := &registration{model: m, fixed: c.v, moving: c.v}
		err := r.checkModel()
		if fault.CodeOf(err) != c.want || err != nil && !strings.Contains(err.Error(), "crop the volumes") {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := r.metrics.Warnings; len(got) != 2*len(c.warnings) {
			t.Errorf("%s: warnings %q", c.name, got)
			continue
		}
		for i, words := range c.warnings {
			if !strings.Contains(r.metrics.Warnings[i], words) {
				t.Errorf("%s: warning %q lacks %q", c.name, r.metrics.Warnings[i], words)
			}
		}
	}
}

// A network of one modality warns where the alignment found two contrasts; one for any, or for two, has nothing to say.
func TestAModelOfOneContrastWarnsOfTwo(t *testing.T) {
	same, other := AlignMetrics{SameModality: true, Score: 0.8}, AlignMetrics{Score: 0.6}
	for _, c := range []struct {
		modality string
		align    AlignMetrics
		warns    bool
	}{
		{"mr", same, false}, {"mr", other, true}, {"ct", other, true}, {"any", other, false}, {"mr-ct", other, false},
	} {
		m := &network.Model{Manifest: network.Manifest{Name: "n", Modality: c.modality}}
		r := &registration{model: m}
		r.metrics.Align = c.align
		r.checkContrasts()
		if got := r.metrics.Warnings; len(got) > 0 != c.warns || c.warns && !strings.Contains(got[0], "one contrast ("+c.modality+")") {
			t.Errorf("%s, one modality %v: warnings %q", c.modality, c.align.SameModality, got)
		}
	}
}
