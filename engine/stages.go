package engine

// stage is a part of a registration that proposes another state.
type stage struct {
	name    string
	weight  float64 // its usual share of the time
	runs    func(*problem, state) bool
	propose func(*problem, *env, state) (proposal, error)
}

// stages are the parts of a registration, in their order.
var stages = []stage{
	{"align", 4, func(*problem, state) bool { return true }, (*problem).align},
	{"look", 2, (*problem).looks, (*problem).lookBeforeNetwork},
	{"search", 6, (*problem).searches, (*problem).search},
	{"network", 4, func(_ *problem, st state) bool { return st.facts.Network }, (*problem).network},
	{"refine", 12, func(p *problem, st state) bool { return p.iterations(st) > 0 }, (*problem).refine},
	{"landmarks", 4, func(p *problem, _ state) bool { return len(p.landmarks) > 0 }, (*problem).keepToLandmarks},
}

// The weights of what follows the stages.
const (
	reverseWeight     = 26
	uncertaintyWeight = 4
	finishWeight      = 1
)

// weight returns the weight of all stages that a problem runs.
func (p *problem) weight() (total float64) {
	for _, s := range stages {
		if s.runs(p, p.start()) {
			total += s.weight
		}
	}
	return total
}

// solve runs the stages, each from the state that was accepted before.
func (p *problem) solve(e *env) (state, error) {
	st := p.start()
	for _, s := range stages {
		if !s.runs(p, st) {
			continue
		}
		err := e.run(s.name, s.weight, func() error {
			next, err := s.propose(p, e, st)
			if err == nil {
				st = p.accept(e.notes, next)
			}
			return err
		})
		if err != nil {
			return st, err
		}
	}
	return st, nil
}

// accept decides on the proposal of a stage, by a measure that no stage optimises.
func (p *problem) accept(n *notes, next proposal) state {
	if next.rival == nil {
		return next.state
	}
	why := next.rule(p.compare(next.rival.end, next.end))
	if why == "" {
		return next.state
	}
	n.because(why)
	n.undeformed()
	return *next.rival
}
