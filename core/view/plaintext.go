package view

import (
	"math"
	"strings"
	"unicode/utf8"
)

// defaultWidth is the width of text, in columns, if a request sets none.
const defaultWidth = 110

// terminalWidth is the width of a plan's short form, which must fit any terminal.
const terminalWidth = 80

const columnGap = 2 // between a table's columns

func columns(text string) int { return utf8.RuneCountInString(text) }

// padded fills a text with spaces up to width.
func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-columns(text)))
}

// aligned fills a text with spaces before it.
func aligned(text string, width int) string {
	return strings.Repeat(" ", max(0, width-columns(text))) + text
}

func indented(lines []string, indent string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		if line != "" {
			out[i] = indent + line
		}
	}
	return out
}

// wrap breaks a text into lines no wider than width; those after the first begin with hanging. What
// fits keeps its spaces, and a word wider than a line is cut.
func wrap(text string, width int, hanging string) []string {
	var lines []string
	indent, room, rest := "", width, []rune(text)
	for len(rest) > room {
		cut := room
		for cut > 0 && !(rest[cut] == ' ' && rest[cut-1] != ' ') {
			cut--
		}
		if cut == 0 {
			cut = room
		}
		lines = append(lines, indent+string(rest[:cut]))
		for rest = rest[cut:]; len(rest) > 0 && rest[0] == ' '; {
			rest = rest[1:]
		}
		indent, room = hanging, max(1, width-columns(hanging))
	}
	if len(rest) > 0 || len(lines) == 0 {
		lines = append(lines, indent+strings.TrimRight(string(rest), " "))
	}
	return lines
}

// grid is a table as lines: columns as wide as their widest cell, the widest ones wrapped where
// there is no room, those that are tight last.
func grid(rows [][]string, tight []bool, width int) []string {
	if len(rows) == 0 {
		return nil
	}
	widths := make([]int, len(rows[0]))
	over := columnGap*(len(widths)-1) - width
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], columns(row[i]))
		}
		over += widths[i]
	}
	for _, pass := range []struct {
		tight     bool
		narrowest int
	}{{false, 20}, {true, 14}, {true, 8}} {
		for i := widest(widths, tight, pass.tight); over > 0 && i >= 0 &&
			widths[i] > pass.narrowest; i = widest(widths, tight, pass.tight) {
			widths[i]--
			over--
		}
	}
	var lines []string
	for _, row := range rows {
		lines = append(lines, gridRow(row, widths)...)
	}
	return lines
}

// widest is the index of the widest column, or -1; tight columns count only with last.
func widest(widths []int, tight []bool, last bool) int {
	index := -1
	for i, w := range widths {
		if (last || !tight[i]) && (index < 0 || w > widths[index]) {
			index = i
		}
	}
	return index
}

func gridRow(row []string, widths []int) []string {
	cells, tall := make([][]string, len(row)), 1
	for i, cell := range row {
		cells[i] = wrap(cell, widths[i], "")
		tall = max(tall, len(cells[i]))
	}
	lines := make([]string, tall)
	for n := range lines {
		parts := make([]string, len(row))
		for i, cell := range cells {
			if n < len(cell) {
				parts[i] = cell[n]
			}
			parts[i] = padded(parts[i], widths[i])
		}
		lines[n] = strings.TrimRight(strings.Join(parts, strings.Repeat(" ", columnGap)), " ")
	}
	return lines
}

var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// cells converts a share of 0 to 1 to characters of a width; NaN is 0.
func cells(share float64, width int) int {
	if math.IsNaN(share) {
		return 0
	}
	return int(min(max(share, 0), 1)*float64(width) + 0.5)
}

// bar is a bar in eighths of a character, share 0 to 1 of width.
func bar(share float64, width int) string {
	n := cells(share, 8*width)
	return strings.Repeat("█", n/8) + eighths[n%8]
}
