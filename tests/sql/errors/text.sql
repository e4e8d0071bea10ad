SELECT ${MISSING} AS a;
SELECT ${bad name};
SELECT 'fine;' -- it's a comment
;
SELECT 1 /* never closed ;
