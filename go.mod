module github.com/fairlead/fairlead

go 1.26.0
