package fault

import (
	"fmt"
	"strings"
)

// Plural writes a count with its noun: "1 GPU", "2 GPUs".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Shorten keeps a caller's text readable inside a message: valid UTF-8, at most 80 characters.
func Shorten(text string) string {
	const most = 80
	text = strings.ToValidUTF8(text, "?")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
