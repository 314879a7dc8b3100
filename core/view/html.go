package view

import (
	"embed"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode"
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
		"plus":      func(a, b int) int { return a + b },
		"px": func(x float64) string {
			return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64)
		},
		"draw": func(data any) (template.HTML, error) { return draw(parsed, data) },
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

// draw returns the HTML of blocks or shapes. It is safe to insert: templates have escaped all that
// is in it.
func draw(parsed *template.Template, data any) (template.HTML, error) {
	var out strings.Builder
	drawOne := func(one interface{ look() string }) error {
		return parsed.ExecuteTemplate(&out, one.look(), one)
	}
	switch parts := data.(type) {
	case []Block:
		for _, one := range parts {
			if err := drawOne(one); err != nil {
				return "", err
			}
		}
	case []shape:
		for _, one := range parts {
			if err := drawOne(one); err != nil {
				return "", err
			}
		}
	default:
		return "", fmt.Errorf("a %T cannot be drawn", data)
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

// Lengths, in characters, that texts of a record are cut to: names in a heading, and any text at
// all.
const (
	nameLength = 120
	textLength = 4000
)

// visible writes out what does nothing but harm: control characters, and marks that turn text
// around.
func visible(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if hidden(r) {
			out.WriteString(escapeOf(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// escapeOf is "\n", "\x1b", "\u202e".
func escapeOf(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") }

// clipped is at most n characters of a text.
func clipped(text string, n int) string {
	if len(text) <= n || utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// name is a text short enough for a heading.
func name(text string) string { return clipped(text, nameLength) }

// tidy makes every text of a record visible and bounded, so that no view has to think of it.
func tidy(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			tidy(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			tidy(v.Field(i))
		}
	case reflect.Slice:
		tidyAll(v)
	case reflect.Map:
		tidyMap(v)
	case reflect.Interface:
		if text, is := v.Interface().(string); is {
			v.Set(reflect.ValueOf(shownText(text)))
		}
	case reflect.String:
		v.SetString(shownText(v.String()))
	}
}

func shownText(text string) string { return visible(clipped(text, textLength)) }

func tidyAll(v reflect.Value) {
	switch v.Type().Elem().Kind() {
	case reflect.Float64, reflect.Int, reflect.Bool, reflect.Uint8:
		// columns are long, and hold no text
		return
	}
	for i := range v.Len() {
		tidy(v.Index(i))
	}
}

// tidyMap makes the keys visible, too: they are names of other people's formats.
func tidyMap(v reflect.Value) {
	if v.IsNil() {
		return
	}
	fresh := reflect.MakeMapWithSize(v.Type(), v.Len())
	for pair := v.MapRange(); pair.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(pair.Key())
		value.Set(pair.Value())
		tidy(key)
		tidy(value)
		fresh.SetMapIndex(key, value)
	}
	v.Set(fresh)
}
