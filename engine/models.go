package engine

import (
	"fmt"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/volume"
)

// loadModel resolves the model option; nil is none. Until a network that does not depend on the contrast is built in,
// "default" is none: a network is only as good as its match with the images, and only the user knows that a built-in
// one was trained on such.
func loadModel(name, folder string) (*network.Model, error) {
	if name == "none" || name == "default" {
		return nil, nil
	}
	return network.Load(name, folder)
}

const (
	// mostBeyond is how many times the voxels of a network's least grid it is run on, where these are more than
	// plainGrid: a network for a hippocampus would run for minutes over a torso, and its result there means nothing.
	mostBeyond, plainGrid = 64, 1 << 23
	// otherLength is the factor from which on a field of view or a voxel size differs too much from those that a
	// network is made for.
	otherLength = 3
	// airOfCT is an intensity that CT has and MR has not.
	airOfCT = -200
)

// checkModel compares the images with what the manifest says that the network is made for: it warns where they differ,
// and refuses a grid that would take for ever.
func checkModel(n *notes, m network.Manifest, fixed, moving *volume.Volume) error {
	least := m.MinSize
	if m.Size != nil {
		least = *m.Size
	}
	voxels := 1
	for _, size := range least {
		voxels *= max(size, 1)
	}
	canonical, _, _ := fixed.Geometry.Canonical() // as the manifest's axes run
	if grid := m.Grid(canonical); grid.Voxels() > max(plainGrid, mostBeyond*voxels) {
		return fault.New(fault.InvalidArgument,
			"model %s is made for images of about %s, the fixed volume is of %s, and the network would run on %d million voxels; crop the volumes to what it is made for, or choose another model",
			m.Name, inMM(m.Lengths()), inMM(canonical.Lengths()), grid.Voxels()/1e6)
	}
	for _, image := range []struct {
		name string
		v    *volume.Volume
	}{{"fixed", fixed}, {"moving", moving}} {
		g, _, _ := image.v.Geometry.Canonical()
		longer := 0.0
		usual, own := m.Lengths(), g.Lengths()
		coarser := 0.0
		for a := range 3 {
			if usual[a] > 0 {
				longer = max(longer, own[a]/usual[a])
			}
			if s := m.SpacingMM[2-a]; s != nil {
				coarser = max(coarser, g.Spacing[a] / *s)
			}
		}
		if (longer > otherLength || longer < 1.0/otherLength) && min(usual[0], usual[1], usual[2]) > 0 {
			n.warn(fmt.Sprintf("Model %s is made for images of about %s, and the %s volume is of %s: its result there means little; check its voxel size, crop the volumes, or choose another model.",
				m.Name, inMM(usual), image.name, inMM(own)))
		}
		if coarser > otherLength {
			n.warn(fmt.Sprintf("Model %s is made for finer voxels than those of the %s volume, of %.3g x %.3g x %.3g mm.", m.Name, image.name, g.Spacing[0], g.Spacing[1], g.Spacing[2]))
		}
		if low := image.v.Percentiles(1, 99)[0]; m.Modality == "mr" && low < airOfCT {
			n.warn(fmt.Sprintf("Model %s is made for MR, and the %s volume has intensities about %.0f, as CT has.", m.Name, image.name, low))
		}
	}
	return nil
}

// suits says whether a network is for two images of such contrasts.
func suits(m network.Manifest, f plan.Facts) bool {
	return m.Modality == "any" || m.Modality == "mr-ct" || plan.IntensitiesCompare(f.SameModality, f.Score)
}

// checkContrasts warns where a network for images of one kind meets two contrasts, which the alignment tells: it
// compares what it has learnt to see, and makes the error of points larger than without a network.
func checkContrasts(n *notes, m network.Manifest, f plan.Facts) {
	if suits(m, f) {
		return
	}
	n.warn(fmt.Sprintf("Model %s is made for two images of one contrast (%s), and these two seem to have different ones: points may end further off than without a network; leave it out, or choose another model.",
		m.Name, m.Modality))
}

func inMM(lengths [3]float64) string {
	return fmt.Sprintf("%.0f x %.0f x %.0f mm", lengths[0], lengths[1], lengths[2])
}
