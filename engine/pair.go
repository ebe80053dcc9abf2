package engine

import (
	"fmt"
	"strconv"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Pair is what to register: the moving volume onto the fixed one's grid. Masks, rigid regions and the start may be nil.
type Pair struct {
	Fixed, Moving         *volume.Volume
	FixedMask, MovingMask *volume.Volume // non-zero selects; each on its image's grid
	Rigid                 *volume.Volume // labels on the fixed image's grid, each of which moves as one body; 0 is none
	Initial               *volume.Affine // fixed -> moving LPS mm: where the initial alignment starts (or stays, with Initial: "none")

	// Channels are further images of both sides, and label maps, which drive the registration beside the first.
	Channels []Channel

	// InitialField, which may be nil, is a displacement d before Initial, p -> Initial(p + d(p)), on any grid; beyond
	// it that of its border holds. The deformable stages go on from there, and Initial stays. Without Initial the field
	// is the whole map.
	InitialField *field.Field

	Landmarks []Landmark // that the registration keeps to, as exactly as the option landmark_error says; none: the images alone

	// Doubts are sentences of whoever read the files: where a header contradicts itself about the place of the voxels.
	// Each becomes a warning and a reason of the verdict, which is Check at most.
	Doubts []string
}

// Channel is one more image of both sides of a pair, or one more label map: each lies on a grid of its own in the space
// of its side's image.
type Channel struct {
	Name          string // for messages; empty: its number
	Fixed, Moving *volume.Volume
	Weight        float64 // beside the 1 of the pair's own images; 0: 1
	Labels        bool    // they are label maps: whole numbers, 0 is background
}

// ChannelName returns what messages call the k-th channel.
func (p Pair) ChannelName(k int) string {
	if name := p.Channels[k].Name; name != "" {
		return name
	}
	return fmt.Sprintf("channel %d", k+2) // the pair's own images are the first
}

// Landmark is one point of the fixed image and where it is in the moving one, LPS mm.
type Landmark struct {
	Name          string // for messages; empty: its number
	Fixed, Moving [3]float64
}

// name returns what messages call the i-th landmark.
func (p Pair) name(i int) string {
	if name := p.Landmarks[i].Name; name != "" {
		return name
	}
	return strconv.Itoa(i + 1)
}
