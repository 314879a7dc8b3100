package view

import (
	"embed"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"sync"
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
		"px":        func(x float64) string { return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64) },
		"draw":      func(what any) (template.HTML, error) { return draw(parsed, what) },
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

// draw gives the HTML of blocks or shapes. It is safe to insert: templates have escaped all that is in it.
func draw(parsed *template.Template, what any) (template.HTML, error) {
	var out strings.Builder
	each := func(one interface{ look() string }) error {
		return parsed.ExecuteTemplate(&out, one.look(), one)
	}
	switch found := what.(type) {
	case []Block:
		for _, one := range found {
			if err := each(one); err != nil {
				return "", err
			}
		}
	case []shape:
		for _, one := range found {
			if err := each(one); err != nil {
				return "", err
			}
		}
	default:
		return "", fmt.Errorf("a %T cannot be drawn", what)
	}
	return template.HTML(out.String()), nil
}

// html is the document as a card, or as a page of its own that loads nothing.
func (d Document) html(what string) (string, error) {
	parsed, err := looks()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := parsed.ExecuteTemplate(&out, what, d); err != nil {
		return "", err
	}
	return out.String(), nil
}
