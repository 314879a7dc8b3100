package view

import (
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths, in characters, that texts of a record are cut to: names in a heading, and any text at all.
const (
	nameLength = 120
	textLength = 4000
)

// visible writes out what does nothing but harm: control characters, and marks that turn text around.
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
	case reflect.Float64, reflect.Int, reflect.Bool, reflect.Uint8: // columns are long, and hold no text
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
	for each := v.MapRange(); each.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(each.Key())
		value.Set(each.Value())
		tidy(key)
		tidy(value)
		fresh.SetMapIndex(key, value)
	}
	v.Set(fresh)
}
