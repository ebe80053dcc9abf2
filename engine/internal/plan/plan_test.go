package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// largeImage has more voxels than a crop.
const largeImage = 4 * Crop

var auto = Options{Preset: "default", Similarity: "auto", Smoothness: "auto", Refine: -1}

// oneModality are facts of two images whose intensities compare, that agree so after a smooth fit.
func oneModality(voxels int, agreement float64) Facts {
	return Facts{Voxels: voxels, SameModality: true, Score: 0.6, Agreement: refine.Agreement{Correlation: agreement}}
}

// Kinds of pairs as they were measured, and the regime that suits them.
func TestRegimes(t *testing.T) {
	framesOf := func(agreement float64) Facts {
		f := oneModality(largeImage, agreement)
		f.From = 0.9
		return f
	}
	still := framesOf(0.94)
	still.Still = true
	noise := oneModality(largeImage, 0.6)
	noise.Agreement.Detail = 0.2
	detailed := func(agreement, detail, strain, bend float64) Facts {
		f := oneModality(largeImage, agreement)
		f.Agreement.Detail, f.Strain, f.Bend = detail, strain, bend
		return f
	}
	apart := oneModality(largeImage, 0.9)
	apart.Apart = true
	sections := oneModality(largeImage, 0.35)
	sections.Slices, sections.Large = true, true
	across := func(agreement, negative float64) Facts {
		a := refine.Agreement{Correlation: agreement, Negative: negative}
		return Facts{Voxels: largeImage, Agreement: a, Unsearched: a, Score: 0.4}
	}
	contrasts := Facts{Voxels: largeImage, Agreement: refine.Agreement{Correlation: 0.6}}
	varies := oneModality(largeImage, 0.6)
	varies.Varies = true
	mapped := contrasts
	mapped.Mapped = 0.8
	network := oneModality(largeImage, 0.9)
	network.Network = true
	for _, c := range []struct {
		name  string
		facts Facts
		want  string
	}{
		{"two people's heads", oneModality(largeImage, 0.72), "two people"},
		{"two people's crops", oneModality(Crop/10, 0.80), "two people"},
		{"two people, as alike as one body", oneModality(largeImage, 0.83), "two people or one body"},
		{"a tumour before and after", oneModality(largeImage, 0.84), "one body, tissue new or gone"},
		{"the same, one scan noisy", detailed(0.67, 0.75, 0.011, 0.095), "one body, tissue new or gone"},
		{"a torso, one scan under a curve", detailed(0.80, 0.92, 0.107, 0.077), "one body, tissue new or gone"},
		{"two mice whose skulls are alike", detailed(0.77, 0.796, 0.077, 0.068), "two people"},
		{"two people's abdomens, as sharp as one body", detailed(0.526, 0.881, 0.219, 0.290), "two people"},
		{"two people's heads in one atlas", detailed(0.70, 0.755, 0.01, 0.19), "two people"},
		{"one head seen twice", oneModality(largeImage, 1), "one body"},
		{"one abdomen, breathing", oneModality(largeImage, 0.89), "one body nearly everywhere"},
		{"a beating heart", framesOf(0.94), "frames of one scan"},
		{"a heart that nothing moved", still, "one body"},
		{"before and after surgery, in one place", framesOf(0.84), "one body, tissue new or gone"},
		{"one body under noise", noise, "noise"},
		{"two people that the search left apart", apart, "two people, far apart"},
		{"neighbouring sections of tissue", sections, "slices in the large"},
		{"two contrasts", contrasts, "two contrasts"},
		{"MR and CT of two people", across(0.3, 0.12), "two people, two contrasts"},
		{"one body whose contrast is reversed in places", across(0.33, 0.45), "two contrasts"},
		{"MR and CT of one body, cropped", across(0.45, 0.08), "two contrasts"},
		{"two contrasts that passed as one", varies, "two contrasts"},
		{"two contrasts that a curve maps", mapped, "one contrast by a curve"},
		{"after a network", network, "asked"},
	} {
		if got := For(auto, c.facts); got.Name != c.want || (got.Why == "") != (c.want == "asked") {
			t.Errorf("%s: %q because %q, want %q", c.name, got.Name, got.Why, c.want)
		}
	}
}

// A search for a part of a displacement leaves one body apart, too: how the images agreed before says how roughly they are fitted.
func TestFarApart(t *testing.T) {
	f := oneModality(largeImage, 0.87)
	f.Apart = true
	people := rough(auto, f)
	for _, c := range []struct {
		name   string
		before float64
		want   refine.Regularisation
	}{
		{"two people", 0.78, people},
		{"between", (twoPeople + OneBody) / 2, between(people, stiff, 0.5, 0, 1)},
		{"one body", OneBody, stiff},
	} {
		f.Unsearched.Correlation = c.before
		coarse, _ := Coarse(auto, f, true)
		if fine := For(auto, f).By; !near(fine, c.want) || fine != coarse {
			t.Errorf("%s: fitted by %v and %v, want %v", c.name, fine, coarse, c.want)
		}
	}
}

// Two contrasts that lie as they were taken are moved little.
func TestInPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		from float64
		want refine.Regularisation
	}{
		{"two people", 0.34, descriptors.large},
		{"between", 0.405, between(descriptors.large, faint, 0.5, 0, 1)},
		{"frames of one scan", 0.42, faint},
	} {
		f := Facts{Voxels: largeImage, From: c.from, Agreement: refine.Agreement{Correlation: 0.45}}
		if got := For(auto, f).By; !near(got, c.want) {
			t.Errorf("%s: fitted by %v, want %v", c.name, got, c.want)
		}
	}
}

func near(a, b refine.Regularisation) bool {
	return math.Abs(a.Fluid-b.Fluid)+math.Abs(a.Elastic-b.Elastic)+math.Abs(a.Fading-b.Fading)+math.Abs(a.Sharpen-b.Sharpen) < 1e-9
}

// The same pair on another grid, which agrees by a thousandth more, is regularised alike.
func TestNoStepBetweenRegimes(t *testing.T) {
	lengths := func(r refine.Regularisation) [4]float64 { return [4]float64{r.Fluid, r.Elastic, r.Fading, r.Sharpen} }
	most := [4]float64{0.16, 0.07, 0.07, 0.25}
	for _, of := range []Facts{{Voxels: Crop / 10}, {Voxels: largeImage}, {Voxels: Crop / 10, Slices: true}, {Voxels: largeImage, Slices: true}} {
		at := func(agreement float64) [4]float64 {
			f := oneModality(of.Voxels, agreement)
			f.Slices = of.Slices
			return lengths(For(auto, f).By)
		}
		last := at(0)
		for c := 0.0; c <= 1; c += 0.001 {
			now := at(c)
			for k := range now {
				if d := math.Abs(now[k] - last[k]); d > most[k] {
					t.Errorf("%d voxels, slices %v, at %.3f: length %d goes from %g to %g", of.Voxels, of.Slices, c, k, last[k], now[k])
				}
			}
			last = now
		}
	}
}

func TestSearchFor(t *testing.T) {
	facts := func(change func(*Facts)) Facts {
		f := Facts{Voxels: largeImage, SameModality: true, Score: 0.5, Agreement: refine.Agreement{Correlation: 0.6}}
		change(&f)
		return f
	}
	for _, c := range []struct {
		name   string
		change func(*Facts)
		share  float64
	}{
		{"two people's abdomens", func(*Facts) {}, 1},
		{"two people's heads", func(f *Facts) { f.Score, f.Agreement.Correlation = 0.75, 0.7 }, 0},
		{"heads that are aligned neither well nor badly", func(f *Facts) { f.Score = 0.68 }, 0.5},
		{"one body", func(f *Facts) { f.Agreement.Correlation = 0.9 }, 0},
		{"one body under noise", func(f *Facts) { f.Agreement.Detail = 0.2 }, 0},
		{"frames of one scan", func(f *Facts) { f.From, f.Agreement.Correlation = 0.9, 0.95 }, 1},
		{"two contrasts of one body", func(f *Facts) { f.SameModality = false }, 0},
		{"MR and CT of two people", func(f *Facts) { f.SameModality, f.Agreement.Correlation = false, 0.3 }, 1},
		{"two contrasts that lie as they were taken", func(f *Facts) { f.SameModality, f.Agreement.Correlation, f.From = false, 0.3, 0.42 }, 0},
		{"two contrasts that may lie so", func(f *Facts) { f.SameModality, f.Agreement.Correlation, f.From = false, 0.3, 0.405 }, 0.5},
		{"two contrasts of two people in place", func(f *Facts) { f.SameModality, f.Agreement.Correlation, f.From = false, 0.3, 0.34 }, 1},
		{"slices of two people's abdomens", func(f *Facts) { f.Slices = true }, 1},
		{"neighbouring sections of tissue", func(f *Facts) { f.Slices, f.Large, f.Agreement.Correlation = true, true, 0.35 }, 0},
		{"slices of two people's heads", func(f *Facts) { f.Slices, f.Agreement.Correlation = true, 0.75 }, 0},
	} {
		if s := SearchFor(auto, facts(c.change)); math.Abs(s.Share-c.share) > 1e-9 || s.Why == "" {
			t.Errorf("%s: share %g because %q, want %g", c.name, s.Share, s.Why, c.share)
		}
	}
}

// What the search finds in pairs that are neither well nor badly aligned counts in part.
func TestUnaligned(t *testing.T) {
	for _, c := range []struct{ score, want float64 }{{0.3, 1}, {0.66, 1}, {0.67, 0.75}, {0.68, 0.5}, {0.7, 0}, {0.9, 0}} {
		if got := unaligned(Facts{Score: c.score}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("score %g: %g, want %g", c.score, got, c.want)
		}
	}
}

// Only large slices that agree little are refined in the large, and coarsely.
func TestMatchesInTheLarge(t *testing.T) {
	section := func(pixels, agreement float64) Facts {
		f := oneModality(int(math.Pow(pixels, 1.5)), agreement)
		f.Slices = true
		return f
	}
	volumes, contrasts := section(2e6, 0.3), section(2e6, 0.3)
	volumes.Slices, contrasts.SameModality = false, false
	for _, c := range []struct {
		name  string
		o     Options
		facts Facts
		want  bool
	}{
		{"neighbouring sections", auto, section(2e6, 0.3), true},
		{"one section seen twice", auto, section(2e6, 0.8), false},
		{"two people's abdomens", auto, section(2e6, 0.6), false},
		{"a slice of a scan", auto, section(512*512, 0.3), false},
		{"volumes", auto, volumes, false},
		{"two contrasts", auto, contrasts, false},
		{"asked for fine detail", Options{Preset: "default", Similarity: "auto", Smoothness: "low", Refine: -1}, section(2e6, 0.3), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.facts.MatchesInTheLarge(c.o); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			c.facts.Large = c.want
			if coarse := c.facts.Finest(c.o) == aligned.SlicePixels; coarse != c.want {
				t.Errorf("the finest grid has %d voxels", c.facts.Finest(c.o))
			}
		})
	}
}

func TestMayMap(t *testing.T) {
	one := func(correlation, gain float64) Facts {
		return Facts{SameModality: true, Score: 0.8, Agreement: refine.Agreement{Correlation: correlation, Gain: gain}}
	}
	two, channels := Facts{Agreement: refine.Agreement{Correlation: 0.5, Gain: 0.5}}, one(0.87, 0.28)
	channels.Channels = true
	auto := Options{Similarity: "auto", Smoothness: "auto"}
	for _, c := range []struct {
		name string
		f    Facts
		o    Options
		want bool
	}{
		{"two contrasts", two, auto, true},
		{"an abdomen, one contrast by a curve", one(0.87, 0.283), auto, true},
		{"a head, one contrast by a curve", one(0.843, 0.22), auto, true},
		{"a head that agrees", one(0.936, 0.237), auto, true},
		{"a torso, cut out", one(0.843, 0.187), auto, false},
		{"an abdomen, two people", one(0.796, 0.235), auto, false},
		{"a made-up head", one(0.956, 0.165), auto, false},
		{"with channels", channels, auto, false},
		{"asked for", two, Options{Similarity: "mind", Smoothness: "auto"}, false},
	} {
		if got := c.f.MayMap(c.o); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestIsMapped(t *testing.T) {
	match := func(before, after, correlation, apart float64) refine.Match {
		return refine.Match{Before: refine.Agreement{Gain: before}, Agreement: refine.Agreement{Correlation: correlation, Gain: after}, Apart: apart}
	}
	for _, c := range []struct {
		name string
		gain float64 // by descriptors
		m    refine.Match
		want bool
	}{
		{"a head in two contrasts", 0.59, match(0.19, 0.13, 0.92, 0), true},
		{"a crop under noise", 0.38, match(0.23, 0.23, 0.75, 0.05), true},
		{"MR and CT of one phantom", 1.22, match(0.21, 0.20, 0.89, 0.15), false},
		{"of its part", 1.29, match(0.20, 0.17, 0.90, 0.08), false},
		{"T1 and FLAIR beside a tumour", 0.25, match(0.30, 0.26, 0.82, 0.01), false},
		{"MR and CT of two people", 0.75, match(0.89, 0.86, 0.42, 0.22), false},
		{"two of a cord's contrasts", 0.43, match(0.25, 0.25, 0.42, 0.43), false},
	} {
		if got := (Facts{Agreement: refine.Agreement{Gain: c.gain}}).IsMapped(c.m); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestContrastVaries(t *testing.T) {
	for _, c := range []struct {
		name  string
		score float64
		a     refine.Agreement
		want  bool
	}{
		{"two people's CT, contrast medium in one", 0.53, refine.Agreement{Correlation: 0.6, Gain: 0.3}, false},
		{"two people's heads", 0.77, refine.Agreement{Correlation: 0.7, Gain: 0.22}, false},
		{"T1 and FLAIR of a head", 0.67, refine.Agreement{Correlation: 0.65, Negative: 0.013, Gain: 0.3}, true},
		{"a CT whose contrast was changed", 0.62, refine.Agreement{Correlation: 0.67, Negative: 0.0166, Gain: 0.52}, true},
		{"contrast inverted in places", 0.5, refine.Agreement{Correlation: 0.5, Negative: 0.3, Gain: 0.1}, true},
		{"two people's heads, two scanners", 0.75, refine.Agreement{Correlation: 0.64, Negative: 0.0012, Gain: 0.26}, false},
		{"one body", 0.9, refine.Agreement{Correlation: 0.95, Gain: 0.3}, false},
	} {
		f := Facts{SameModality: true, Score: c.score, Agreement: c.a}
		if got := f.ContrastVaries(auto); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDeformation(t *testing.T) {
	for _, c := range []struct {
		name string
		m    referee.Margin
		want bool
	}{
		{"aligned already", referee.Margin{Distance: 0.03, Correlation: 0.01}, false},
		{"a beating heart", referee.Margin{Distance: 0.8, Correlation: 0.05}, true},
		{"two contrasts under noise", referee.Margin{Distance: 0.06, Correlation: 0.04}, true},
		{"apart", referee.Margin{Distance: -0.2, Correlation: -0.1}, false},
	} {
		if why := Deformation(c.m); (why == "") != c.want {
			t.Errorf("%s: refused because %q", c.name, why)
		}
	}
}

func TestAlignment(t *testing.T) {
	for _, c := range []struct {
		name    string
		m       referee.Margin
		compare bool // the intensities
		want    bool
	}{
		{"aligned already", referee.Margin{Distance: -0.2, Common: 1}, false, false},
		{"apart", referee.Margin{Distance: 0.4, Correlation: 0.1, Common: 0.8, T: 20}, false, true},
		{"apart, in a small crop", referee.Margin{Distance: 0.34, Correlation: 0.14, Common: 1, T: 7.2}, false, true},
		{"better here, worse there", referee.Margin{Distance: 0.07, Correlation: 0.1, Common: 0.6, T: 1.6}, false, false},
		{"two people's hearts, right", referee.Margin{Distance: 0.13, Correlation: 0.047, Common: 0.54, T: 7.6}, false, true},
		{"two people's hearts, right and close", referee.Margin{Distance: 0.1, Correlation: 0.02, Common: 0.67, T: 6.38}, false, true},
		{"two people's hearts, wrong", referee.Margin{Distance: 0.112, Correlation: 0.025, Common: 0.81, T: 6.1}, false, false},
		{"nothing in common at first", referee.Margin{Common: 0.05}, false, true},
		{"out of the field of view, and worse there", referee.Margin{Distance: -0.5, Correlation: -0.06, Common: 0.39, T: -9.1}, false, false},
		{"speckle, which is another in every frame", referee.Margin{Distance: 0.09, Correlation: 0.1, Common: 0.9, T: 3.6}, true, true},
		{"the same of two contrasts", referee.Margin{Distance: 0.09, Correlation: 0.1, Common: 0.9, T: 3.6}, false, false},
	} {
		if why := Alignment(c.compare)(c.m); (why == "") != c.want {
			t.Errorf("%s: refused because %q, want taken: %v", c.name, why, c.want)
		}
	}
}

// Smoothness: low is rougher than high, and a number of mm is that of the Gaussian, within bounds.
func TestSmoothnessAsked(t *testing.T) {
	for _, s := range []refine.Similarity{refine.NCC, refine.MSE, refine.MIND} {
		t.Run(string(s), func(t *testing.T) {
			by := func(word string) (Regime, float64) {
				o := Options{Preset: "default", Similarity: string(s), Smoothness: word}
				return For(o, Facts{Voxels: Crop}), SearchAsked(o, Facts{Voxels: Crop}).Stiffness
			}
			low, a := by("low")
			high, b := by("high")
			if low.By.Fluid >= high.By.Fluid || low.By.Elastic >= high.By.Elastic {
				t.Errorf("%s: low %+v, high %+v", s, low.By, high.By)
			}
			if a >= b {
				t.Errorf("%s: the search is as stiff as %g by low and %g by high", s, a, b)
			}
		})
	}
	for _, c := range []struct {
		mm       string
		spacing  float64
		shortest int
		fluid    float64
	}{{"6", 2, 100, 3}, {"0.1", 2, 100, 0.5}, {"100", 1, 40, 10}} {
		t.Run(fmt.Sprintf("%s mm in %g", c.mm, c.spacing), func(t *testing.T) {
			o := Options{Preset: "default", Similarity: "ncc", Smoothness: c.mm}
			if got := For(o, Facts{Spacing: c.spacing, Shortest: c.shortest}).By.Fluid; got != c.fluid {
				t.Errorf("%s mm on %g mm voxels: %g voxels, want %g", c.mm, c.spacing, got, c.fluid)
			}
		})
	}
}

// factsOf returns the facts of such numbers.
func factsOf(numbers map[string]float64) (f Facts) {
	each("", reflect.ValueOf(&f).Elem(), func(name string, v reflect.Value) {
		switch x := numbers[name]; v.Kind() {
		case reflect.Bool:
			v.SetBool(x != 0)
		case reflect.Int:
			v.SetInt(int64(x))
		default:
			v.SetFloat(x)
		}
	})
	return f
}

// Facts that are written and read again are the same.
func TestNumbers(t *testing.T) {
	want := Facts{
		Voxels: 1000, Slices: true, SameModality: true, Score: 0.5, From: 0.9, Searched: 1, Still: true, Mapped: 0.8, Spacing: 1.5, Shortest: 40,
		Agreement: refine.Agreement{Correlation: 0.7, Negative: 0.1, Detail: 0.2, Gain: 0.3},
	}
	numbers := want.Numbers()
	if got := factsOf(numbers); got != want {
		t.Errorf("%+v became %+v", want, got)
	}
	if numbers["agreement_correlation"] != 0.7 || numbers["slices"] != 1 || len(numbers) != 14 {
		t.Errorf("%v", numbers)
	}
}

// The choices for many pairs come out as they did when the pairs were registered and their errors measured. A threshold that moves names the
// pairs that it costs, or serves: where that is meant, python/benchmarks/facts.py measures them anew.
func TestReplay(t *testing.T) {
	text := testkit.Must(os.ReadFile("testdata/facts.json"))(t)
	var rows []struct {
		Kind, Pair, Regime string
		Search             float64
		Facts              map[string]float64
		Errors             map[string]float64 // mm at points, by the option smoothness
	}
	testkit.OK(t, json.Unmarshal(text, &rows))
	if len(rows) < 20 {
		t.Errorf("%d pairs", len(rows))
	}
	for _, row := range rows {
		t.Run(row.Kind+"/"+row.Pair, func(t *testing.T) {
			facts := factsOf(row.Facts)
			if got := For(auto, facts).Name; got != row.Regime {
				t.Errorf("as %q, and it was registered as %q; errors by smoothness, mm: %v", got, row.Regime, row.Errors)
			}
			facts.Agreement = facts.Unsearched
			facts.Apart, facts.Mapped = false, 0
			if got := SearchFor(auto, facts).Share; math.Abs(got-row.Search) > 1e-6 {
				t.Errorf("a search counts by %.3f, and it did by %.3f; errors by smoothness, mm: %v", got, row.Search, row.Errors)
			}
		})
	}
}

func TestIsOneBody(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts Facts
		want  bool
	}{
		{"two people's hippocampi, as alike as they come", oneModality(Crop/10, 0.833), false},
		{"one hippocampus, moved", oneModality(Crop/10, 0.937), true},
		{"one under noise", Facts{SameModality: true, Score: 0.6, Agreement: refine.Agreement{Correlation: 0.6, Detail: 0.2}}, true},
		{"two contrasts of one head", Facts{Agreement: refine.Agreement{Correlation: 0.58}}, true},
		{"MR and CT of two people", Facts{Agreement: refine.Agreement{Correlation: 0.3}}, false},
	} {
		if got := c.facts.IsOneBody(auto); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestErrorFactor(t *testing.T) {
	t.Parallel()
	of := func(correlation, detail float64) Facts {
		return Facts{SameModality: true, Score: 0.8, Agreement: refine.Agreement{Correlation: correlation, Detail: detail}}
	}
	for _, c := range []struct {
		name  string
		facts Facts
		want  float64
	}{
		{"one body", of(0.96, 0), 1},
		{"two people's brains", of(0.7, 0.8), 2},
		{"halfway", of(0.86, 0.8), 1.5},
		{"one body under speckle", of(0.64, 0.2), 1},
		{"not measured", of(0, 0), 1},
		{"two contrasts", Facts{Agreement: refine.Agreement{Correlation: 0.5}}, 1},
		{"two contrasts and a curve", Facts{Mapped: 0.9, Agreement: refine.Agreement{Correlation: 0.5}}, 0.5},
	} {
		if got := c.facts.ErrorFactor(Options{Similarity: "auto"}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
}
