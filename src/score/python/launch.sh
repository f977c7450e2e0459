# Starts launcher.py with the interpreter of a console script (pytest, py.test): launch.sh SCRIPT EVENTS PLAN
script=$1
shift
python=python3
case $script in
*/*) path=$script ;;
*)
	path=
	IFS=:
	for directory in $PATH; do
		case $directory in /*) ;; *) continue ;; esac
		if [ -f "$directory/$script" ] && [ -x "$directory/$script" ]; then
			path=$directory/$script
			break
		fi
	done
	unset IFS
	;;
esac
if [ -f "$path" ] && read -r line <"$path" 2>/dev/null; then
	case $line in
	'#!'*env\ *python*) python=${line##*env } ;;
	'#!'*python*) python=${line#\#!} ;;
	esac
	# pip's form for long paths: #!/bin/sh, then '''exec' /long/python "$0" "$@"
	case $line in
	'#!/bin/sh'*)
		{ read -r line && read -r line; } <"$path"
		case $line in *python*) line=${line#"'''exec' "}; python=${line%' "$0"'*} ;; esac
		;;
	esac
fi
python=${python# }
case $python in \"*\") python=${python#\"}; python=${python%\"} ;; esac
set -f
exec $python -S /run/brig/launcher.py "$@"
