package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// curves is a chart of lines over time, steps or events: axes with their labels in a gutter, a
// limit, spans and marks.
type curves struct {
	Kind   string   `json:"kind"` // "curves"
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	XUnit  string   `json:"x_unit"`
	X      axis     `json:"x"`
	Top    float64  `json:"top"` // of the vertical axis, which begins at 0
	Series []Series `json:"series"`
	Limit  *Limit   `json:"limit"`
	Spans  []Span   `json:"spans"`
	Events []event  `json:"events"`
	Aside  bool     `json:"-"` // neither in text nor drawn by Python
}

// axis is the horizontal one; a tick's label is written at At.
type axis struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Ticks []tick  `json:"ticks"`
}

type tick struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// Series is a line in pieces without gaps, each of places (x, y); of Stacked ones each lies on
// those before it.
type Series struct {
	Name    string         `json:"name"`
	Colour  string         `json:"colour"` // "" is that of text
	Area    bool           `json:"area"`
	Stacked bool           `json:"stacked"`
	Pieces  [][][2]float64 `json:"pieces"`
}

// Limit is a value with its name.
type Limit struct {
	At   float64 `json:"at"`
	Name string  `json:"name"`
}

// Span is a time in which something lasted: "evaluation", "checkpoint" or "gap".
type Span struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Kind string  `json:"kind"`
	Text string  `json:"text"`
}

// event is something at a moment: Level "serious" and "warning" are an alert that held Until,
// numbered by Label; "out of memory" a full line, "phase" a dotted one with its name, and "" a
// short one.
type event struct {
	At    float64  `json:"at"`
	Until *float64 `json:"until"`
	Level string   `json:"level"`
	Label string   `json:"label"`
	Text  string   `json:"text"`
}

func (curves) templateName() string { return "curves" }
func (c curves) plotted() bool      { return !c.Aside && !c.Empty() }

const (
	curveTop    = 17.0 // pixels above the lines, for the numbers of alerts
	curveHeight = 120.0
	apart       = 0.016 // of the width, between numbers
	sparkline   = 70    // characters
)

// Empty reports whether nothing is known of any line.
func (c curves) Empty() bool {
	return !slices.ContainsFunc(c.Series, func(s Series) bool { return len(s.Pieces) > 0 })
}

func (c curves) at(x float64) float64 { return between(x, c.X.Low, c.X.High) }

func (c curves) y(value float64) float64 {
	return curveTop + curveHeight*(1-between(value, 0, c.top()))
}

// top is where the vertical axis ends: at 1 where nothing is above 0.
func (c curves) top() float64 { return cmp.Or(max(c.Top, 0), 1) }

// limited reports whether there is a limit low enough to be in the picture.
func (c curves) limited() bool { return c.Limit != nil && c.Limit.At <= c.top() }

func (c curves) heights() []float64 {
	step := roundStep(c.top())
	var heights []float64
	for n := 1.0; n*step <= c.top()*(1+1e-9); n++ {
		heights = append(heights, n*step)
	}
	return heights
}

// Gutter has the labels of the vertical axis, the unit with the highest.
func (c curves) Gutter() picture {
	p := picture{Height: curveTop + curveHeight + tickHeight}
	heights, unit := append([]float64{0}, c.heights()...), ""
	for i, h := range heights {
		if i > 0 && i == len(heights)-1 {
			unit = " " + c.Unit
		}
		p.add(label{X: 1, Y: c.y(h) + 4, Anchor: "end", Class: "label", Text: short(h) + unit})
	}
	return p
}

// Drawn is the picture: grid, spans, lines, limit, events, the labels of the horizontal axis.
func (c curves) Drawn() picture {
	floor := curveTop + curveHeight
	p := picture{Label: c.Title, Words: c.words(), Height: floor + tickHeight}
	for _, h := range c.heights() {
		p.add(stroke{W: 1, Y: c.y(h), Class: "grid"})
	}
	p.add(stroke{W: 1, Y: floor, Class: "floor"})
	for _, s := range c.Spans {
		x := c.at(s.From)
		p.add(box{X: x, W: max(c.at(s.To)-x, 0.0012), Y: curveTop, H: curveHeight, Class: s.Kind,
			Title: s.Text})
	}
	p.add(stretched{Y: curveTop, H: curveHeight, Paths: c.paths()})
	if c.limited() {
		p.add(stroke{W: 1, Y: c.y(c.Limit.At), Class: "limit", Dashed: true, Title: c.Limit.Name})
	}
	p.add(c.events()...)
	for _, t := range c.X.Ticks {
		x := c.at(t.At)
		p.add(label{X: x, Y: floor + 13, Anchor: anchor(x), Class: "label", Text: t.Text})
	}
	return p
}

func (c curves) words() string {
	parts := make([]string, len(c.Series))
	for i, s := range c.Series {
		parts[i] = fmt.Sprintf("%s up to %s %s", s.Name, short(s.highest()), c.Unit)
	}
	return strings.Join(parts, ", ")
}

func (s Series) highest() float64 {
	top := 0.0
	for _, piece := range s.Pieces {
		for _, place := range piece {
			top = max(top, place[1])
		}
	}
	return top
}

func (c curves) paths() []path {
	var paths []path
	var below [][2]float64
	for _, s := range c.Series {
		if s.Stacked {
			above := sum(s.Pieces, below)
			paths = append(paths, path{D: c.stacked(above, below), Colour: s.Colour, Area: true,
				Class: "stacked", Title: s.Name})
			below = above
			continue
		}
		line, area, alone := "", "", ""
		for _, piece := range s.Pieces {
			x, y := c.place(piece[0])
			steps := c.walk(piece)
			line += fmt.Sprintf("M%d %d%s", x, y, steps)
			area += fmt.Sprintf("M%d %dV%d%sV%dZ", x, pathHeight, y, steps, pathHeight)
			if len(piece) == 1 { // a line as thin as the others would not be seen
				alone += fmt.Sprintf("M%d %d%s", x, y, steps)
			}
		}
		if s.Area {
			paths = append(paths, path{D: area, Colour: s.Colour, Area: true, Class: "under"})
		}
		paths = append(paths, path{D: line, Colour: s.Colour, Title: s.Name})
		if alone != "" {
			paths = append(paths, path{D: alone, Colour: s.Colour, Class: "alone"})
		}
	}
	return paths
}

// sum lies a line on the one below it, which has the same places.
func sum(pieces [][][2]float64, below [][2]float64) [][2]float64 {
	if len(pieces) == 0 {
		return below
	}
	above := make([][2]float64, len(pieces[0]))
	for i, place := range pieces[0] {
		above[i] = place
		if i < len(below) {
			above[i][1] += below[i][1]
		}
	}
	return above
}

// stacked is the area between a line and the one below it, or the floor.
func (c curves) stacked(above, below [][2]float64) string {
	if len(above) == 0 {
		return ""
	}
	x, y := c.place(above[0])
	out := fmt.Appendf(nil, "M%d %d%s", x, y, c.walk(above))
	for _, place := range slices.Backward(below) {
		x, y := c.place(place)
		out = fmt.Appendf(out, "L%d %d", x, y)
	}
	if len(below) == 0 {
		out = fmt.Appendf(out, "V%dH%d", pathHeight, x)
	}
	return string(append(out, 'Z'))
}

// walk goes from the first place through all others by steps: half the text that places would take.
func (c curves) walk(piece [][2]float64) string {
	if len(piece) == 1 {
		return "h1"
	}
	out := []byte{'l'}
	x, y := c.place(piece[0])
	for i, place := range piece[1:] {
		x2, y2 := c.place(place)
		for k, step := range []int{x2 - x, y2 - y} {
			if step >= 0 && (i > 0 || k > 0) {
				out = append(out, ' ')
			}
			out = strconv.AppendInt(out, int64(step), 10)
		}
		x, y = x2, y2
	}
	return string(out)
}

func (c curves) place(p [2]float64) (int, int) {
	return int(pathWidth*c.at(p[0]) + 0.5), int(math.RoundToEven(pathHeight * (1 - between(p[1], 0,
		c.top()))))
}

// events are lines; alerts also a bar above for as long as they held, and their number where there
// is room.
func (c curves) events() []shape {
	var shapes []shape
	const floor = curveTop + curveHeight
	last, free := -1.0, 0.0
	for _, e := range c.Events {
		x := c.at(e.At)
		switch e.Level {
		case "phase":
			shapes = append(shapes, stroke{X: x, Y: curveTop, H: curveHeight, Class: "grid phase",
				Dashed: true, Title: e.Text})
			if x >= free {
				shapes = append(shapes, label{X: x, DX: 2, Y: floor + 13, Anchor: "start",
					Class: "label", Text: e.Text})
				free = x + 0.011*float64(columns(e.Text)) + 0.012
			}
		case "out of memory":
			shapes = append(shapes, stroke{X: x, Y: curveTop, H: curveHeight, Class: "limit",
				Title: e.Text})
		case "":
			shapes = append(shapes, stroke{X: x, Y: floor - 14, H: 14, Class: "level thin",
				Title: e.Text})
		default:
			end := 1.0
			if e.Until != nil {
				end = c.at(*e.Until)
			}
			class := "alert " + e.Level
			shapes = append(shapes,
				stroke{X: x, Y: curveTop, H: curveHeight, Class: class, Dashed: true},
				box{X: x, W: max(end-x, 0.002), Y: curveTop - 3, H: 3, Class: class, Title: e.Text})
			if x-last > apart {
				shapes = append(shapes, label{X: x, Y: curveTop - 5, Anchor: anchor(max(x, 0.5)),
					Class: "number " + e.Level, Text: e.Label})
				last = x
			}
		}
	}
	return shapes
}

// Keys are what the lines stand for.
func (c curves) Keys() []key {
	var keys []key
	for _, s := range c.Series {
		k := key{Name: s.Name, Colour: s.Colour}
		if s.Colour == "" {
			k.Line = "level"
		}
		keys = append(keys, k)
	}
	if c.limited() {
		keys = append(keys, key{Name: c.Limit.Name, Line: "limit"})
	}
	return keys
}

var blocks = []rune(" ▁▂▃▄▅▆▇█")

// lines are the first line alone, as blocks of a height up to the limit or its top; a space where
// nothing is known.
func (c curves) lines(int) []string {
	if c.Empty() || c.Aside {
		return nil
	}
	top := cmp.Or(Series{Pieces: c.first()}.highest(), 1)
	if c.limited() {
		top = c.Limit.At
	} else if c.Unit == "%" {
		top = 100
	}
	cells := []rune(strings.Repeat(" ", sparkline))
	for _, piece := range c.first() {
		for i, place := range piece {
			from := int(c.at(place[0]) * sparkline)
			to := from
			if i+1 < len(piece) {
				to = max(from, int(c.at(piece[i+1][0])*sparkline)-1)
			}
			level := blocks[1+int(7.999*between(place[1], 0, top))]
			for column := from; column <= min(to, sparkline-1); column++ {
				cells[column] = max(cells[column], level)
			}
		}
	}
	return []string{fmt.Sprintf("%s |%s| %s %s", padded(clipped(c.Title, 22), 18), string(cells),
		short(top), c.Unit)}
}

// first is the line that text shows: of stacked ones their sum, which is drawn last.
func (c curves) first() [][][2]float64 {
	if !c.Series[0].Stacked {
		return c.Series[0].Pieces
	}
	var total [][2]float64
	for _, s := range c.Series {
		if s.Stacked {
			total = sum(s.Pieces, total)
		}
	}
	return [][][2]float64{total}
}
