package view

import (
	"math"
	"strings"
)

// shape is a part of a picture. Places across are shares of the width, so that texts keep their
// size on narrow screens; places down are pixels.
type shape interface{ templateName() string }

type box struct {
	X, W          float64 // shares of 0 to 1
	Y, H          float64
	Class, Colour string
	Opacity       float64
	Title         string
}

// stroke is a line that goes W across and H down.
type stroke struct {
	X, W, Y, H   float64
	Class, Title string
	Dashed       bool
}

func (s stroke) X2() float64 { return s.X + s.W }
func (s stroke) Y2() float64 { return s.Y + s.H }

type label struct {
	X      float64
	DX, Y  float64
	Anchor string
	Class  string
	Text   string
	Colour string
}

// stretched are paths in a measure of their own, spread over the whole width.
type stretched struct {
	Y, H  float64
	Paths []path
}

// path is a line, or an area, through places of 0 to pathWidth and 0 to pathHeight.
type path struct {
	D, Colour, Class, Title string
	Area                    bool
}

const pathWidth, pathHeight = 1000, 1000

func (box) templateName() string       { return "box" }
func (stroke) templateName() string    { return "stroke" }
func (label) templateName() string     { return "label" }
func (stretched) templateName() string { return "stretched" }

// picture is inline SVG as wide as there is room; Label and Words are for those who hear it.
type picture struct {
	Label, Words string
	Height       float64
	Shapes       []shape
}

func (picture) templateName() string { return "picture" }

func (p *picture) add(shapes ...shape) { p.Shapes = append(p.Shapes, shapes...) }

// between is where a value lies between two others, 0 to 1; what is not a number is at 0.
func between(x, low, high float64) float64 {
	place := (x - low) / max(high-low, 1e-9)
	if math.IsNaN(place) {
		return 0
	}
	return min(max(place, 0), 1)
}

// anchor keeps a text inside the picture.
func anchor(x float64) string {
	switch {
	case x < 0.02:
		return "start"
	case x > 0.97:
		return "end"
	}
	return "middle"
}

// ink is the colour of a text on a colour: black, which contrasts more than white with each of
// them.
func ink(colour string) string {
	if strings.HasPrefix(colour, "#") {
		return "#000000"
	}
	return ""
}

// The colours of shares of memory in every picture; and of lines, in their order.
var partColours = map[string]string{
	"parameters": "#4e79a7", "model and optimizer": "#4e79a7", "training": "#4e79a7",
	"buffers": "#86bcb6", "gradients": "#f28e2b",
	"optimizer": "#b07aa1", "activations": "#59a14f", "temporaries": "#edc948",
	"logits_loss": "#ff9da7", "outputs": "#ff9da7",
	"inputs": "#76b7b2", "workspaces": "#9c755f", "cached": "#d0d0d0",
	"reserved, not held": "#d0d0d0", "context": "#7f7f7f",
}

var lineColours = []string{"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2",
	"#ff9da7", "#edc948"}

const otherColour = "#8c8c8c"

func colourOf(part string) string {
	if colour, ok := partColours[part]; ok {
		return colour
	}
	return otherColour
}
