package view

import (
	"embed"
	"fmt"
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed templates/card.css
var cardStyle string

//go:embed templates/page.css
var pageStyle string

// The class of every card, twice: so its rules win over what notebooks say of tables.
const cardClass = ".asrconfig.asrconfig"

// looks are the templates, parsed at the first use.
var looks = sync.OnceValues(func() (*template.Template, error) {
	parsed := template.New("looks")
	css := template.CSS(compact(strings.ReplaceAll(cardStyle, "&", cardClass)))
	parsed.Funcs(template.FuncMap{
		"style":     func() template.CSS { return css },
		"pageStyle": func() template.CSS { return template.CSS(compact(pageStyle)) },
		"share":     share,
		"px": func(x float64) string {
			return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64)
		},
		"draw":   func(parts []Block) (template.HTML, error) { return drawn(parsed, parts) },
		"shapes": func(parts []shape) (template.HTML, error) { return drawn(parsed, parts) },
	})
	return parsed.ParseFS(templates, "templates/*.html")
})

// compact leaves the comment at its head, line breaks and indents of a stylesheet out.
func compact(css string) string {
	var out strings.Builder
	if _, rules, commented := strings.Cut(css, "*/"); commented {
		css = rules
	}
	for line := range strings.Lines(css) {
		out.WriteString(strings.TrimSpace(line))
	}
	return out.String()
}

// share is a share of a width as CSS and SVG write it.
func share(x float64) string { return fmt.Sprintf("%.2f%%", 100*between(x, 0, 1)) }

// drawn is the HTML of blocks or shapes. It is safe to insert: templates have escaped all that is
// in it.
func drawn[T shape](parsed *template.Template, parts []T) (template.HTML, error) {
	var out strings.Builder
	for _, part := range parts {
		if err := parsed.ExecuteTemplate(&out, part.templateName(), part); err != nil {
			return "", err
		}
	}
	return template.HTML(out.String()), nil
}

// html is the document as a card, or as a page of its own that loads nothing.
func (d Document) html(template string) (string, error) {
	parsed, err := looks()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := parsed.ExecuteTemplate(&out, template, d); err != nil {
		return "", err
	}
	return out.String(), nil
}

// nameLength is how many characters of a name a heading has.
const nameLength = 120

// clipped is at most n characters of a text.
func clipped(text string, n int) string {
	if len(text) <= n || utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// name is a text short enough for a heading.
func name(text string) string { return clipped(text, nameLength) }

// escaped are the characters that JSON writes as escapes.
var escaped = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// tidy makes a record's texts safe to show, so that no view has to think of it: control characters,
// and marks that turn text around, are shown as JSON escapes them.
func tidy(record []byte) []byte {
	return escaped.ReplaceAllFunc(record, func(escape []byte) []byte {
		switch escape[1] {
		case '"', '\\', '/':
			return escape
		case 'u':
			code, _ := strconv.ParseUint(string(escape[2:]), 16, 16)
			if r := rune(code); unicode.IsPrint(r) || utf16.IsSurrogate(r) {
				return escape
			}
		}
		return append([]byte{'\\'}, escape...)
	})
}
