package view

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// chart is a block that Python can draw with matplotlib, too, from its JSON.
type chart interface {
	Block
	plotted() bool
}

// bars is a chart of horizontal bars, each of one part or of several side by side.
type bars struct {
	Kind   string   `json:"kind"` // "bars"
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	Top    float64  `json:"top"` // what the whole width stands for
	Rows   []barRow `json:"rows"`
	Levels []level  `json:"levels"` // what the bars are compared with
	Ticks  bool     `json:"-"`      // sizes below the bars
	Legend bool     `json:"legend"`
	Aside  bool     `json:"-"` // not drawn by Python
}

type barRow struct {
	Name  string    `json:"name"`
	Text  string    `json:"text"` // after the bar
	Parts []segment `json:"parts"`
	Low   *float64  `json:"low"` // of a whisker
	High  *float64  `json:"high"`
	Pale  bool      `json:"pale"`
}

// segment is a part of a bar; Label is written into it where there is room.
type segment struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Colour string  `json:"colour"` // "" is that of all bars
	Label  string  `json:"label"`
	Text   string  `json:"text"` // its figure
	Note   string  `json:"-"`    // beside its figure
}

// level is a line across all bars; a Limit is dashed and red.
type level struct {
	Name  string  `json:"name"`
	At    float64 `json:"at"`
	Text  string  `json:"text"`
	Limit bool    `json:"limit"`
	Class string  `json:"-"`
}

func (bars) templateName() string { return "bars" }
func (b bars) plotted() bool      { return !b.Aside && len(b.Rows) > 0 }

const (
	barHeight   = 20.0
	tallBar     = 30.0
	tickHeight  = 18.0
	labelled    = 0.022 // of the width, that a label of one character takes
	barColumns  = 40
	longName    = 40 // columns of a name beside a bar
	sizeColumns = 9  // of "15.00 GiB"
)

// One reports whether there is a single bar without a name.
func (b bars) One() bool { return len(b.Rows) == 1 && b.Rows[0].Name == "" }

// Drawn is the picture of a row.
func (b bars) Drawn(i int) picture {
	r, height := b.Rows[i], barHeight
	if b.One() {
		height = tallBar
	}
	p := picture{Label: strings.TrimSpace(r.Name + " " + b.Title), Words: b.words(r),
		Height: height + 4}
	for _, l := range b.Levels {
		if l.Class == "end" {
			p.add(box{W: l.At / b.Top, Y: 2, H: height, Class: "shade", Opacity: 0.07})
		}
	}
	start := 0.0
	for _, s := range r.Parts {
		p.add(b.segment(r, s, start, height)...)
		start += s.Value
	}
	if r.Low != nil && r.High != nil {
		p.add(b.whisker(*r.Low, *r.High, height)...)
	}
	for _, l := range b.Levels {
		p.add(stroke{X: l.At / b.Top, H: height + 4, Class: l.class(), Dashed: l.Limit,
			Title: l.Name + " " + l.Text})
	}
	if b.Ticks {
		p.add(b.ticks(height + tickHeight)...)
		p.Height += tickHeight
	}
	return p
}

func (l level) class() string {
	if l.Limit {
		return "limit"
	}
	return strings.TrimSpace("level " + l.Class)
}

func (b bars) words(r barRow) string {
	var parts []string
	for _, s := range r.Parts {
		parts = append(parts, strings.TrimSpace(s.Name+" "+s.Text))
	}
	for _, l := range b.Levels {
		parts = append(parts, l.Name+" "+l.Text)
	}
	if r.Text != "" {
		parts = append(parts, r.Text)
	}
	return strings.Join(parts, ", ")
}

func (b bars) segment(r barRow, s segment, start, height float64) []shape {
	class, x, w := "bar", start/b.Top, s.Value/b.Top
	switch {
	case s.Colour == "before":
		class, s.Colour = "before", ""
	case s.Colour != "":
		class = "part"
	case r.Pale:
		class = "bar pale"
	}
	shapes := []shape{box{X: x, W: min(w, 1-min(x, 1)), Y: 2, H: height, Class: class,
		Colour: s.Colour, Title: strings.TrimSpace(s.Name + ": " + s.Text)}}
	if s.Label != "" && w >= labelled*float64(max(1, columns(s.Label)-1)) {
		shapes = append(shapes, label{X: x + w/2, Y: height/2 + 6, Anchor: "middle",
			Class: "number", Text: s.Label, Colour: ink(s.Colour)})
	}
	return shapes
}

func (b bars) whisker(low, high, height float64) []shape {
	middle, x1, x2 := 2+height/2, low/b.Top, high/b.Top
	return []shape{
		stroke{X: x1, W: x2 - x1, Y: middle, Class: "level"},
		stroke{X: x1, Y: middle - 4, H: 8, Class: "level"},
		stroke{X: x2, Y: middle - 4, H: 8, Class: "level"},
	}
}

// ticks are round sizes in bytes.
func (b bars) ticks(y float64) []shape {
	unit, name := binary(b.Top)
	shapes := []shape{label{X: 0, Y: y, Anchor: "start", Class: "label", Text: "0 " + name}}
	step := roundStep(b.Top / unit)
	for n := 1; float64(n) <= b.Top/unit/step; n++ {
		if x := float64(n) * step * unit / b.Top; x > 0.1 && x < 0.985 {
			shapes = append(shapes, label{X: x, Y: y, Anchor: "middle", Class: "label",
				Text: fmt.Sprintf("%.6g", float64(n)*step)})
		}
	}
	return shapes
}

// binary is the unit in which sizes up to top are told, with its name.
func binary(top float64) (float64, string) {
	if top >= units.GiB {
		return units.GiB, "GiB"
	}
	return units.MiB, "MiB"
}

// Keys are what the colours of the parts and the levels stand for.
func (b bars) Keys() []key {
	var keys []key
	if !b.Legend || len(b.Rows) == 0 {
		return nil
	}
	for _, s := range b.Rows[0].Parts {
		k := key{Name: s.Name, Colour: s.Colour, Label: s.Label, Ink: ink(s.Colour)}
		if b.One() {
			k.Text, k.Note = s.Text, s.Note
		} else {
			k.Label = ""
		}
		keys = append(keys, k)
	}
	for _, l := range b.Levels {
		line := l.class()
		if !l.Limit {
			line += " upright"
		}
		keys = append(keys, key{Name: l.Name, Text: l.Text, Line: line})
	}
	return keys
}

// key is an entry of a legend: a chip of a colour, or a line of a class.
type key struct{ Name, Text, Note, Label, Colour, Ink, Line string }

func (b bars) lines(width int) []string {
	if b.One() {
		return b.stacked(width)
	}
	if b.Legend { // parts of several bars
		var rows pairs
		for _, r := range b.Rows {
			rows = append(rows, [2]string{clipped(r.Name, longName), b.words(r)})
		}
		return rows.lines(width)
	}
	var rows [][]string
	for _, r := range b.Rows {
		rows = append(rows, []string{clipped(r.Name, longName),
			"|" + padded(bar(r.Parts[0].Value/b.Top, barColumns), barColumns) + "|", r.Text})
	}
	if rows == nil {
		return nil
	}
	return append([]string{b.Title}, indented(grid(rows, []bool{true, true, false}, width-2), "  ")...)
}

// stacked shows the parts of one bar below each other, each where it begins.
func (b bars) stacked(width int) []string {
	var rows [][]string
	add := func(name, text, drawn, note string) {
		rows = append(rows, []string{clipped(name, longName), aligned(text, sizeColumns),
			"|" + string([]rune(padded(drawn, barColumns))[:barColumns]) + "|", note})
	}
	start := 0.0
	for _, s := range b.Rows[0].Parts {
		from, to := cells(start/b.Top, barColumns), cells((start+s.Value)/b.Top, barColumns)
		filled := 0
		if s.Value > 0 {
			filled = max(1, to-from)
		}
		add(s.Name, s.Text, strings.Repeat(" ", min(from, barColumns-1))+
			strings.Repeat("█", filled), s.Note)
		start += s.Value
	}
	for _, l := range b.Levels {
		at := max(0, cells(l.At/b.Top, barColumns)-1)
		add(l.Name, l.Text, strings.Repeat("·", at)+"┤", "")
	}
	return grid(rows, []bool{true, true, true, false}, width)
}
