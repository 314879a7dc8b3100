package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// histogram is a chart of counts by duration.
type histogram struct {
	Kind   string      `json:"kind"` // "histogram"
	Title  string      `json:"title"`
	Words  string      `json:"-"`
	Note   string      `json:"note"` // below the title where it is drawn alone
	Unit   string      `json:"unit"`
	Noun   string      `json:"noun"` // what is counted
	Edges  []float64   `json:"edges"`
	Counts []int       `json:"counts"`
	Marks  []mark      `json:"marks"`
	Ranges []clipRange `json:"-"`
}

// mark is a line at a value; a Limit is dashed, and bars beyond one that Cuts are pale.
type mark struct {
	At    float64 `json:"at"`
	Text  string  `json:"text"`
	Limit bool    `json:"limit"`
	Cuts  bool    `json:"-"`
}

// clipRange is a range of values that ends at UpTo, with a short label and what is to be known of
// it.
type clipRange struct {
	UpTo        float64
	Label, Text string
}

func (histogram) templateName() string { return "histogram" }
func (h histogram) plotted() bool      { return len(h.Edges) > 0 }

const (
	histogramHeight = 130.0
	markHeight      = 14.0  // of a label above the bars
	rangeLabelled   = 0.045 // of the width, for the label of a range
)

func (h histogram) at(x float64) float64 {
	return between(x, h.Edges[0], h.Edges[len(h.Edges)-1])
}

func (h histogram) tallest() float64 {
	return float64(max(1, slices.Max(append([]int{0}, h.Counts...))))
}

// Drawn is the picture: ranges, bars, marks with their labels above, values below.
func (h histogram) Drawn() picture {
	marks := h.shown()
	top := markHeight * float64(len(marks))
	if len(h.Ranges) > 0 {
		top += markHeight
	}
	floor := top + histogramHeight
	p := picture{Label: h.Title, Words: h.Words, Height: floor + tickHeight}
	p.Shapes = append(h.ranges(floor), h.bars(floor)...)
	for i, m := range marks {
		y := top - markHeight*float64(len(marks)-i)
		class := "level thin"
		if m.Limit {
			class = "limit"
		}
		p.add(stroke{X: h.at(m.At), Y: y + 2, H: floor - y - 2, Class: class, Dashed: m.Limit})
	}
	for i, m := range marks {
		text := label{X: h.at(m.At), DX: 4, Y: top - markHeight*float64(len(marks)-i) + 11,
			Anchor: "start", Class: "label", Text: m.Text}
		if text.X > 0.5 {
			text.DX, text.Anchor = -4, "end"
		}
		p.add(text)
	}
	p.add(stroke{W: 1, Y: floor, Class: "floor"})
	every := max(1, (len(h.Edges)+4)/8)
	for i := 0; i < len(h.Edges); i += every {
		text := fmt.Sprintf("%.4g", h.Edges[i])
		if i == 0 {
			text += " " + h.Unit
		}
		x := h.at(h.Edges[i])
		p.add(label{X: x, Y: floor + 14, Anchor: anchor(x), Class: "label", Text: text})
	}
	return p
}

// shown are the marks inside the picture. Labels lie inwards of their lines, so that in this order
// no line crosses a label.
func (h histogram) shown() []mark {
	var inside []mark
	for _, m := range h.Marks {
		if m.At >= h.Edges[0] && m.At <= h.Edges[len(h.Edges)-1] {
			inside = append(inside, m)
		}
	}
	place := func(m mark) float64 {
		if x := h.at(m.At); x > 0.5 {
			return 2 - x
		}
		return h.at(m.At)
	}
	slices.SortStableFunc(inside, func(a, b mark) int { return cmp.Compare(place(a), place(b)) })
	return inside
}

func (h histogram) bars(floor float64) []shape {
	cut, shapes := h.cut(), []shape(nil)
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		low, high := h.Edges[i], h.Edges[i+1]
		tall := max((histogramHeight-6)*float64(n)/h.tallest(), 1.5)
		class := "bar"
		if low >= cut {
			class = "bar pale"
		}
		title := fmt.Sprintf("%.6g–%.6g %s: %s", low, high, h.Unit, count(n, h.Noun))
		shapes = append(shapes, box{X: h.at(low), W: 0.92 * (h.at(high) - h.at(low)),
			Y: floor - tall, H: tall, Class: class, Title: title})
	}
	return shapes
}

func (h histogram) cut() float64 {
	cut := h.Edges[len(h.Edges)-1] + 1
	for _, m := range h.Marks {
		if m.Cuts {
			cut = min(cut, m.At)
		}
	}
	return cut
}

// ranges are shaded, every other one more.
func (h histogram) ranges(floor float64) []shape {
	var shapes []shape
	low := 0.0
	for i, r := range h.Ranges {
		high := h.at(r.UpTo)
		shapes = append(shapes, box{X: low, W: high - low, H: floor, Class: "shade",
			Opacity: []float64{0.03, 0.09}[i%2], Title: r.Text})
		if high-low >= rangeLabelled {
			shapes = append(shapes, label{X: (low + high) / 2, Y: 11, Anchor: "middle",
				Class: "label", Text: r.Label})
		}
		low = high
	}
	return shapes
}

// edge is that of a bar as text, all as wide as the others: seconds with their hundredths, tokens
// whole.
func (h histogram) edge(i int) string {
	if h.Unit == units.Texts.Unit() {
		return fmt.Sprintf("%5.0f", h.Edges[i])
	}
	return fmt.Sprintf("%7.2f", h.Edges[i])
}

func (h histogram) lines(int) []string {
	lines := make([]string, 0, len(h.Counts))
	for i, n := range h.Counts {
		filled := cells(float64(n)/h.tallest(), barColumns)
		if n > 0 {
			filled = max(1, filled)
		}
		lines = append(lines, fmt.Sprintf("%s–%s %s |%s| %d", h.edge(i), h.edge(i+1), h.Unit,
			padded(strings.Repeat("█", filled), barColumns), n))
	}
	for _, m := range h.Marks {
		if m.Limit {
			lines = append(lines, m.Text)
		}
	}
	return lines
}
