package plan

import (
	"fmt"

	"github.com/morphseek/morphseek/engine/internal/referee"
)

// Rule says why a proposal is refused, by its margin over what it would replace; "" where it is taken.
type Rule func(referee.Margin) (why string)

// LeastGain is how much better a deformation must be, by Gain. An alignment, which has few degrees of freedom to fit noise by,
// needs half of it.
const LeastGain = 0.075

// leastContinued is the least gain by which a continued deformation replaces the caller's.
const leastContinued = 0.2

// leastShown is the share of the fixed image that both candidates must show for the start to stay as it was.
const leastShown = 0.4

// leastT is Student's t that an alignment's gain needs where it is no large one: wrong alignments gain unevenly over the image.
const leastT, large = 6.2, 0.5

// steadyT is Student's t by which a candidate must lose to be left out for that alone: scales and shears between two contrasts,
// or an alignment that leaves little in common.
const steadyT = 5

// Gain is how much closer a proposal brings the images, by both of the referee's measures.
func Gain(m referee.Margin) float64 { return m.Distance + 2*m.Correlation }

// Closer says whether a deformation brings the images closer.
func Closer(m referee.Margin) bool { return Gain(m) >= LeastGain }

// Deformation takes a deformation that brings the images closer than the initial transform does.
func Deformation(m referee.Margin) (why string) {
	if !Closer(m) {
		return fmt.Sprintf("a deformation brought the images no closer (%+.2f): the initial alignment stays", Gain(m))
	}
	return ""
}

// Continued takes what a stage made of the caller's deformation.
func Continued(stage string) Rule {
	return func(m referee.Margin) (why string) {
		if Gain(m) < leastContinued {
			return fmt.Sprintf("a %s brought the images no closer than the deformation given (%+.2f): that stays", stage, Gain(m))
		}
		return ""
	}
}

// Sheared takes an alignment by scales and shears over the rigid one, unless these lead the images apart nearly everywhere.
func Sheared(m referee.Margin) (why string) {
	if m.T < -steadyT {
		return fmt.Sprintf("scales and shears bring the images no closer (%+.2f): the alignment is rigid", Gain(m))
	}
	return ""
}

// Alignment takes an alignment over the place where the images lay. compare says that their intensities compare: then an
// alignment may gain unevenly, for speckle and missing tissue do that.
func Alignment(compare bool) Rule {
	return func(m referee.Margin) (why string) {
		switch g := Gain(m); {
		case m.Common < leastShown && m.T > -steadyT: // too little to compare
			return ""
		case g < LeastGain/2:
			return fmt.Sprintf("an alignment brings the images no closer than they lay (%+.2f): they stay where they were", g)
		case !compare && m.T < leastT && g < large:
			return fmt.Sprintf("an alignment brings the images closer in parts alone (%+.2f): they stay where they were", g)
		}
		return ""
	}
}
