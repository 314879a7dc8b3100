package fault

import (
	"fmt"
	"strings"
	"unicode/utf8"
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

// Printable makes a file name valid UTF-8, so that it can cross JSON: every byte that is not part of a character becomes
// its \xNN escape.
func Printable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}
